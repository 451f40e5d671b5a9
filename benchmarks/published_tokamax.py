"""How far are estimates from tokamax's kernels as measured on real TPUs?

    python -m benchmarks published_tokamax --rows PATH/v6e.jsonl --python PYTHON [--every 3]

Ragged dots, and linear softmax cross entropies on v7x. PYTHON has ``jax[tpu]`` and ``tokamax``
0.0.12 installed, the source that was measured on v5e and for some rows of v7x; the others ran what
no release has, near to it. The rows are device time of one call from its first operation to its
last, and so is the estimate: what XLA does around the kernel has a column of its own.

A ragged dot with residuals returns the output twice, for which XLA copies it once. Rows that differ
by nothing else say how fast a chip copies within HBM; that is printed first, and needs no compiler.
"""

import argparse
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import DescribeKernel, DescribeToolchain
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimate, Estimated
from autotune.domain.problem import Problem, make_config
from autotune.searching.one_config import evaluate
from autotune.searching.subject import describe_subject
from autotune.wording.outcome import kind_and_reason
from benchmarks.calibration.agreement import Pair, add_arguments, published, report, save

_SUBSET = "tokamax_cache"
KERNEL_FILE = Path(__file__).with_name("kernels") / "tokamax_ragged_dot.py"
_LONG_US = 50_000  # rows of the same blocks that take longer say the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What is to be known of a kernel to read its rows. ``rows``: part of what they call it."""

    name: str
    rows: str
    kernel: str
    axes: tuple[str, ...]
    dims: tuple[str, ...]
    problem: Callable[[CompilerPool, dict[str, Any]], Problem]
    group: Callable[[Problem], str]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_arguments(parser, save="keep the pairs for the accuracy benchmark")
    parser.add_argument("--family", choices=FAMILIES, help="rows of one kernel alone")
    parser.add_argument("--every", type=int, default=1, help="take every so many rows")
    parser.add_argument("--start", type=int, default=0, help="leave out so many rows first")
    args = parser.parse_args()
    wanted = [args.family] if args.family else list(FAMILIES)
    rows = [row for row in published(args.rows, _SUBSET) if family_of(row) in wanted]
    print(f"{len(rows)} rows; copies within HBM: {_copies(rows)}")
    timed = [row for row in rows if _is_shown(row)][args.start :: args.every]
    with group_sizes(timed), CompilerPool(1, python=args.python) as pool:
        print(f"{pool.ask(DescribeToolchain())}; {len(timed)} rows\n")
        print(
            f"{'what':<14}{'problem':<24}{'blocks':<18}{'measured':>9}"
            f"{'kernel':>8}{'XLA':>6}{'ratio':>7}  limited by"
        )
        pairs = []
        for row in timed:
            pair = _compare(pool, row)
            if pair is not None:
                pairs.append(pair)
                save(pairs, args.save)
    if pairs:
        report(pairs)


def _is_shown(row: dict[str, Any]) -> bool:
    """Group sizes that are not given in a way that can be read cannot be compiled for."""
    return row["time_us"] < _LONG_US and isinstance(row["problem"].get("lhs", ""), str)


def _copies(rows: Sequence[dict[str, Any]]) -> str:
    """Gigabytes per second, read and written, from rows that differ by a copy of their result."""
    alike: dict[str, dict[bool, list[float]]] = {}
    sizes: dict[str, int] = {}
    for row in rows:
        problem = row["problem"]
        if family_of(row) == RAGGED_DOT.name and problem["mode"] == "fwd":
            given = {k: v for k, v in problem.items() if k != "return_residuals"}
            name = json.dumps([given, row["config"], row["kernel_source"]], sort_keys=True)
            times = alike.setdefault(name, {}).setdefault(problem["return_residuals"], [])
            times.append(row["time_us"])
            sizes[name] = 2 * 2 * problem["m"] * problem["n"]
    rates = [
        sizes[name] / (mean(times[True]) - mean(times[False])) / 1e3
        for name, times in alike.items()
        if len(times) > 1
    ]
    if not rates:
        return "no two rows"
    return f"{median(rates):.0f} GB/s ({min(rates):.0f} to {max(rates):.0f}, {len(rates)} pairs)"


@contextmanager
def group_sizes(rows: Sequence[dict[str, Any]]) -> Iterator[None]:
    """The rows' group sizes where the declaration reads them, in compiler children started here."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({row["id"]: sizes for row in rows if (sizes := _explicit_sizes(row))}, file)
        file.flush()
        os.environ["AUTOTUNE_GROUP_SIZES"] = file.name
        yield


def _explicit_sizes(row: dict[str, Any]) -> list[int] | None:
    """None: all groups are alike. Drawn ones as the rows say it (``distribution``)."""
    groups = row["problem"].get("group_sizes", {})
    sizes: list[int] | None = groups.get("explicit")
    if sizes is None and "multinomial" in groups.get("distribution", ""):
        count = groups["num_groups"]
        drawn = np.random.default_rng(0).choice(count, groups["total_size"])
        return [int(size) for size in np.bincount(drawn, minlength=count)]
    return sizes


def _compare(pool: CompilerPool, row: dict[str, Any]) -> Pair | None:
    """Measured and estimated microseconds of one row; prints its line. None without an estimate."""
    family = FAMILIES[family_of(row)]
    problem, axes = family.problem(pool, row), {name: row["config"][name] for name in family.axes}
    estimate = _estimate(pool, family, problem, axes, Chip(row["chip"]))
    if estimate is None:
        return None
    pair = Pair(
        subset=_SUBSET,
        chip=row["chip"],
        family=family.name,
        group=family.group(problem),
        limited_by=estimate.limited_by,
        measured_us=row["time_us"],
        estimated_us=estimate.time_us,
    )
    sizes = "x".join(str(problem[name]) for name in family.dims)
    print(
        f"{pair.group:<14}{sizes:<24}{'x'.join(map(str, axes.values())):<18}"
        f"{pair.measured_us:>9.0f}{estimate.kernel_us:>8.0f}"
        f"{estimate.xla_us:>6.0f}{pair.ratio:>7.3f}  {estimate.limited_by}",
        flush=True,
    )
    return pair


def _estimate(
    pool: CompilerPool, family: Family, problem: Problem, axes: dict[str, int], chip: Chip
) -> Estimate | None:
    subject = describe_subject(pool, find_kernel(family.kernel), chip, problem)
    outcome = evaluate(pool, subject, make_config(axes))
    if not isinstance(outcome, Estimated):
        print(f"{problem}, {axes}: {kind_and_reason(outcome)}")
        return None
    return outcome.estimate


def ragged_problem(pool: CompilerPool, row: dict[str, Any]) -> Problem:
    """k and n are the columns of the left operand and of the output."""
    given = row["problem"]
    mode = given["mode"].partition("(")[0]
    (m, k), rhs = _shape(given["lhs"]), _shape(given["rhs"])
    n = rhs[1] if mode == "dlhs" else rhs[-1]
    residuals = str(given["return_residuals"]).lower()
    options = [
        f"mode={mode}",
        f"residuals={residuals}",
        *([f"sizes={row['id']}"] if _explicit_sizes(row) else []),
    ]
    spec = pool.ask(DescribeKernel(ref=find_kernel(RAGGED_DOT.kernel)))
    return spec.problems.parse(
        f"m={m},k={k},n={n},groups={given['group_sizes']['num_groups']}", "bfloat16", options
    )


def _entropy_problem(pool: CompilerPool, row: dict[str, Any]) -> Problem:
    given = row["problem"]
    (tokens, hidden), (_, vocabulary) = _shape(given["x"]), _shape(given["w"])
    spec = pool.ask(DescribeKernel(ref=find_kernel(CROSS_ENTROPY.kernel)))
    shape = f"tokens={tokens},hidden={hidden},vocabulary={vocabulary}"
    return spec.problems.parse(shape, "bfloat16", ["x=float32"])


def _shape(text: str) -> list[int]:
    return [int(size) for size in re.findall(r"\d+", text.partition("[")[2])]


def _ragged_group(problem: Problem) -> str:
    return f"{problem.option('mode')}{'+copy' if problem.option('residuals') else ''}"


RAGGED_DOT = Family(
    name="ragged dot",
    rows="ragged_dot",
    kernel=f"{KERNEL_FILE}:KERNEL",
    axes=("tile_m", "tile_k", "tile_n", "input_buffer_count"),
    dims=("m", "k", "n", "groups"),
    problem=ragged_problem,
    group=_ragged_group,
)
CROSS_ENTROPY = Family(
    name="cross entropy",
    rows="linear_softmax_cross_entropy",
    kernel="tokamax_cross_entropy",
    axes=("b_block_size", "h_block_size", "v_block_size"),
    dims=("tokens", "hidden", "vocabulary"),
    problem=_entropy_problem,
    group=lambda _: "cross entropy",
)
FAMILIES: Mapping[str, Family] = {family.name: family for family in (RAGGED_DOT, CROSS_ENTROPY)}


def family_of(row: dict[str, Any]) -> str:
    """The name in :data:`FAMILIES`; empty for a kernel that is none of them."""
    return next((family.name for family in FAMILIES.values() if family.rows in row["kernel"]), "")
