"""How far are estimates from tokamax's ragged_dot as measured on real TPUs?

    python -m benchmarks published_ragged_dot --rows PATH/v6e.jsonl --python PYTHON

PYTHON has ``jax[tpu]`` and ``tokamax`` 0.0.12 installed, the source that was measured on v5e and
for some rows of v7x; the others ran what no release has, near to it. The rows
are device time of one call from its first operation to its last, and so is the estimate: what XLA
does around the kernel has a column of its own. A call with residuals returns the output twice, for
which XLA copies it once.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from autotune.catalogue.discovery import find_kernel
from autotune.compiler.pool import CompilerPool
from autotune.domain.chip import Chip
from autotune.domain.config import make_config
from autotune.domain.outcome import Estimate, Estimated
from autotune.domain.problem import Problem
from autotune.searching.loop import Subject, evaluate
from tools.calibration.agreement import Pair, arguments, published, report, save

_SUBSET = "tokamax_cache"
KERNEL_FILE = Path(__file__).with_name("kernels") / "tokamax_ragged_dot.py"
_AXES = ("tile_m", "tile_k", "tile_n", "input_buffer_count")


def main() -> None:
    args = arguments(__doc__, save="keep the pairs for the accuracy benchmark")
    rows = [row for row in published(args.rows, _SUBSET) if "ragged_dot" in row["kernel"]]
    with group_sizes(rows), CompilerPool(1, python=args.python) as pool:
        print(f"{pool.toolchain()}; {len(rows)} rows of {_SUBSET}\n")
        print(
            f"{'mode':<9}{'m x k x n, groups':<23}{'tiles, buffers':<17}{'measured':>9}"
            f"{'kernel':>8}{'XLA':>6}{'ratio':>7}  limited by"
        )
        pairs = [pair for row in rows if (pair := _compare(pool, row)) is not None]
    report(pairs)
    save(pairs, args.save)


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
    groups = row["problem"]["group_sizes"]
    sizes: list[int] | None = groups.get("explicit")
    if sizes is None and "multinomial" in groups.get("distribution", ""):
        count = groups["num_groups"]
        drawn = np.random.default_rng(0).choice(count, groups["total_size"])
        return [int(size) for size in np.bincount(drawn, minlength=count)]
    return sizes


def _compare(pool: CompilerPool, row: dict[str, Any]) -> Pair | None:
    """Measured and estimated microseconds of one row; prints its line. None without an estimate."""
    problem, blocks = problem_of(pool, row), row["config"]
    axes = {name: blocks[name] for name in _AXES}
    estimate = _estimate(pool, problem, axes, Chip(row["chip"]))
    if estimate is None:
        return None
    group = f"{problem.option('mode')}{'+copy' if problem.option('residuals') else ''}"
    pair = Pair(
        subset=_SUBSET,
        group=group,
        limited_by=estimate.limited_by,
        measured_us=row["time_us"],
        estimated_us=estimate.time_us,
    )
    sizes = f"{problem['m']}x{problem['k']}x{problem['n']}, {problem['groups']}"
    tiles = f"{'x'.join(str(blocks[name]) for name in _AXES[:3])}, {blocks[_AXES[3]]}"
    print(
        f"{group:<9}{sizes:<23}{tiles:<17}{pair.measured_us:>9.0f}{estimate.kernel_us:>8.0f}"
        f"{estimate.xla_us:>6.0f}{pair.ratio:>7.3f}  {estimate.limited_by}",
        flush=True,
    )
    return pair


def problem_of(pool: CompilerPool, row: dict[str, Any]) -> Problem:
    """The row's problem: k and n are the columns of the left operand and of the output."""
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
    spec = pool.describe(find_kernel(f"{KERNEL_FILE}:KERNEL"))
    return spec.problems.parse(
        f"m={m},k={k},n={n},groups={given['group_sizes']['num_groups']}", "bfloat16", options
    )


def _shape(text: str) -> list[int]:
    return [int(size) for size in re.findall(r"\d+", text.partition("[")[2])]


def _estimate(
    pool: CompilerPool, problem: Problem, axes: dict[str, int], chip: Chip
) -> Estimate | None:
    ref = find_kernel(f"{KERNEL_FILE}:KERNEL")
    subject = Subject(
        ref=ref,
        spec=pool.describe(ref),
        problem=problem,
        chip=pool.chip_info(chip),
        toolchain=pool.toolchain(),
    )
    outcome = evaluate(pool, subject, make_config(axes))
    if not isinstance(outcome, Estimated):
        print(f"{problem}, {axes}: {outcome.kind}, {outcome.reason}")
        return None
    return outcome.estimate
