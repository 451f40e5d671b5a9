"""What is known of plain XLA without a TPU, against times of real TPUs?

    python -m benchmarks published_xla --rows PATH/v5e.jsonl --python PYTHON
    python -m benchmarks published_xla --rows PATH/fusion_statistics_report_with_scale_sim_4096.csv

PYTHON has ``jax[tpu]`` and ``tokamax`` installed (for the problems of the ragged dot rows). The CSV
is of the SCALE-Sim project (``SCALE-Sim-validation/data/data_matmul_new``): the profiled time of
the fusions of float16 products on TPU v4, without the copies around them; nobody else has published
times of that chip. Three figures for each problem: the bound (operations at peak, or arguments and
results once through HBM), the estimate (XLA's own program simulated as kernels are), and, as the
rival, XLA's own ``estimated_cycles``. Products of weight gradients are left out: the declaration
has no plain-XLA version of theirs that was measured.
"""

import csv
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import (
    CompileBaseline,
    DescribeChip,
    DescribeKernel,
    DescribeToolchain,
    XlaCost,
)
from autotune.domain.key import Chip, ChipInfo, KernelRef
from autotune.domain.problem import Problem
from autotune.estimating.cost_model.operation import xla_time
from autotune.estimating.simulator import constants
from autotune.publishing.publish import bound_us, expected_us
from autotune.wording.outcome import kind_and_reason
from benchmarks.calibration.agreement import Pair, arguments, p90, published, save
from benchmarks.published_matmul import DISPATCH_US
from benchmarks.published_tokamax import RAGGED_DOT, group_sizes, ragged_problem

Row = tuple[float, dict[str, float | None], str]
"""Measured microseconds, the figures by name, and what the bound is of."""

_FLOAT16 = f"{Path(__file__).with_name('kernels') / 'float16_matmul.py'}:KERNEL"


def main() -> None:
    args = arguments(__doc__, save="keep the pairs of the estimates for the error bars")
    if args.rows.suffix == ".csv":
        with args.rows.open() as lines, CompilerPool(1, python=args.python) as pool:
            _head(pool)
            rows = [_float16(pool, row) for row in csv.DictReader(lines)]
        _report("matmul", rows)
        save(_pairs(rows, "scale_sim_v4", Chip.V4, "XLA matmul"), args.save)
        return
    matmuls = [r for r in published(args.rows, "jaxdocs_matmul_v5e") if r.get("xla_reference_us")]
    ragged = [r for r in published(args.rows, "tokamax_cache") if r.get("xla_reference_us")]
    ragged = [r for r in ragged if not r["problem"]["return_residuals"]]
    ragged = [r for r in ragged if not r["problem"]["mode"].startswith("drhs")]
    with group_sizes(ragged), CompilerPool(1, python=args.python) as pool:
        _head(pool)
        products = [_matmul(pool, row) for row in _distinct(matmuls)]
        _report("matmul", products)
        dots = [_ragged(pool, row) for row in ragged]
        _report("ragged dot", dots)
    pairs = _pairs(products, "jaxdocs_matmul_v5e", Chip.V5E, "XLA matmul")
    save(pairs + _pairs(dots, "tokamax_cache", Chip.V5E, "XLA ragged dot"), args.save)


def _head(pool: CompilerPool) -> None:
    print(f"{pool.ask(DescribeToolchain())}")
    print(f"{'problem':<60}{'measured':>10}{'bound':>10}{'estimate':>10}{'cycles':>10}")


def _float16(pool: CompilerPool, row: dict[str, str]) -> Row:
    m, n, k = (int(row[f"dim_{dim}"]) for dim in "mnk")
    ref = find_kernel(_FLOAT16)
    problem = pool.ask(DescribeKernel(ref=ref)).problems.parse(f"m={m},k={k},n={n}", "float16")
    io_bytes = 2 * (m * k + k * n + m * n)
    return _compare(pool, ref, problem, float(row["fusion_avg"]), io_bytes, Chip.V4, _fused_us)


def _fused_us(cost: XlaCost, chip: ChipInfo) -> float:
    return sum(
        o.time_us for o in xla_time(cost.schedule, (), chip).operations if o.opcode == "fusion"
    )


def _pairs(rows: Sequence[Row], subset: str, chip: Chip, family: str) -> list[Pair]:
    """Of those that have an estimate."""
    return [
        Pair(
            subset=subset,
            chip=chip.value,
            family=family,
            group="all",
            limited_by=limited_by,
            measured_us=measured_us,
            estimated_us=estimated_us,
        )
        for measured_us, times, limited_by in rows
        if (estimated_us := times["estimate"])
    ]


def _distinct(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a problem: blocks are nothing to XLA."""
    return list({json.dumps(row["problem"]): row for row in rows}.values())


def _matmul(pool: CompilerPool, row: dict[str, Any]) -> Row:
    ref, given = find_kernel("matmul"), row["problem"]
    spec = pool.ask(DescribeKernel(ref=ref))
    problem = spec.problems.parse(f"m={given['m']},k={given['k']},n={given['n']}", given["dtype"])
    io_bytes = 2 * (given["m"] * given["k"] + given["k"] * given["n"] + given["m"] * given["n"])
    return _compare(pool, ref, problem, row["xla_reference_us"] - DISPATCH_US, io_bytes)


def _ragged(pool: CompilerPool, row: dict[str, Any]) -> Row:
    ref, problem = find_kernel(RAGGED_DOT.kernel), ragged_problem(pool, row)
    m, k, n, groups = (problem[dim] for dim in ("m", "k", "n", "groups"))
    io_bytes = 2 * (m * k + m * n + groups * k * n)
    return _compare(pool, ref, problem, row["xla_reference_us"], io_bytes)


def _compare(
    pool: CompilerPool,
    ref: KernelRef,
    problem: Problem,
    measured_us: float,
    io_bytes: int,
    target: Chip = Chip.V5E,
    expected: Callable[[XlaCost, ChipInfo], float | None] = expected_us,
) -> Row:
    chip = pool.ask(DescribeChip(chip=target))
    cost = pool.ask(CompileBaseline(ref=ref, problem=problem, chip=target))
    if not isinstance(cost, XlaCost):
        sys.exit(f"{problem}: {kind_and_reason(cost)}")
    bound = bound_us(cost, io_bytes, problem.dtype, chip)
    limited_by = "compute" if bound == bound_us(cost, 0, problem.dtype, chip) else "HBM"
    times = {"bound": bound, "estimate": expected(cost, chip), "cycles": _cycles_us(cost, target)}
    figures = "".join(f"{us or float('nan'):>10.0f}" for us in times.values())
    print(f"{str(problem)[:58]:<60}{measured_us:>10.0f}{figures}", flush=True)
    return measured_us, times, limited_by


def _cycles_us(cost: XlaCost, chip: Chip) -> float:
    cycles = sum(part.expected_cycles * part.runs for part in cost.schedule)
    return cycles / constants.load(chip.value, is_fused=True).clock_hz * 1e6


def _report(name: str, rows: Sequence[Row]) -> None:
    for what in ("bound", "estimate", "cycles"):
        ratios = sorted(measured / us for measured, times, _ in rows if (us := times[what]))
        errors = sorted(abs(1 / ratio - 1) for ratio in ratios)
        if not ratios:
            print(f"{name}, {what}: none")
            continue
        print(
            f"{name}, measured / {what}: {ratios[0]:.2f} to {ratios[-1]:.2f}, median "
            f"{median(ratios):.2f}, {len(ratios)} of {len(rows)} problems; error of the {what}: "
            f"median {median(errors):.1%}, p90 {p90(errors):.1%}"
        )
