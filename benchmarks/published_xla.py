"""What is known of plain XLA without a TPU, against times of a real v5e?

    python -m benchmarks published_xla --rows PATH/v5e.jsonl --python PYTHON

PYTHON has ``jax[tpu]`` and ``tokamax`` installed (for the problems of the ragged dot rows). Three
figures for each problem: the bound (operations at peak, or arguments and results once through
HBM), the estimate (XLA's own program simulated as kernels are), and, as the rival, XLA's own
``estimated_cycles``. Products of weight gradients are left out: the declaration has no plain-XLA
version of theirs that was measured.
"""

import json
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

from autotune.catalogue.discovery import find_kernel
from autotune.compiler.pool import CompilerPool
from autotune.domain.chip import Chip
from autotune.domain.compiled import XlaCost
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.problem import Problem
from autotune.publishing.baseline import bound_us, expected_us
from autotune.simulator import constants
from benchmarks.published_matmul import DISPATCH_US
from benchmarks.published_ragged_dot import KERNEL_FILE, group_sizes, problem_of
from tools.calibration.agreement import arguments, p90, published

Row = tuple[float, dict[str, float | None]]
"""Measured microseconds, and the figures by name."""


def main() -> None:
    args = arguments(__doc__)
    matmuls = [r for r in published(args.rows, "jaxdocs_matmul_v5e") if r.get("xla_reference_us")]
    ragged = [r for r in published(args.rows, "tokamax_cache") if r.get("xla_reference_us")]
    ragged = [r for r in ragged if not r["problem"]["return_residuals"]]
    ragged = [r for r in ragged if not r["problem"]["mode"].startswith("drhs")]
    with group_sizes(ragged), CompilerPool(1, python=args.python) as pool:
        print(f"{pool.toolchain()}")
        print(f"{'problem':<60}{'measured':>10}{'bound':>10}{'estimate':>10}{'cycles':>10}")
        _report("matmul", [_matmul(pool, row) for row in _distinct(matmuls)])
        _report("ragged dot", [_ragged(pool, row) for row in ragged])


def _distinct(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a problem: blocks are nothing to XLA."""
    return list({json.dumps(row["problem"]): row for row in rows}.values())


def _matmul(pool: CompilerPool, row: dict[str, Any]) -> Row:
    ref, given = find_kernel("matmul"), row["problem"]
    spec = pool.describe(ref)
    problem = spec.problems.parse(f"m={given['m']},k={given['k']},n={given['n']}", given["dtype"])
    io_bytes = 2 * (given["m"] * given["k"] + given["k"] * given["n"] + given["m"] * given["n"])
    return _compare(pool, ref, problem, row["xla_reference_us"] - DISPATCH_US, io_bytes)


def _ragged(pool: CompilerPool, row: dict[str, Any]) -> Row:
    ref, problem = find_kernel(f"{KERNEL_FILE}:KERNEL"), problem_of(pool, row)
    m, k, n, groups = (problem[dim] for dim in ("m", "k", "n", "groups"))
    io_bytes = 2 * (m * k + m * n + groups * k * n)
    return _compare(pool, ref, problem, row["xla_reference_us"], io_bytes)


def _compare(
    pool: CompilerPool, ref: KernelRef, problem: Problem, measured_us: float, io_bytes: int
) -> Row:
    chip = pool.chip_info(Chip.V5E)
    cost = pool.baseline(ref, problem, Chip.V5E)
    if not isinstance(cost, XlaCost):
        sys.exit(f"{problem}: {cost.kind}, {cost.reason}")
    found = {
        "bound": bound_us(cost, io_bytes, problem.dtype, chip),
        "estimate": expected_us(cost, chip),
        "cycles": _cycles_us(cost),
    }
    figures = "".join(f"{us or float('nan'):>10.0f}" for us in found.values())
    print(f"{str(problem)[:58]:<60}{measured_us:>10.0f}{figures}", flush=True)
    return measured_us, found


def _cycles_us(cost: XlaCost) -> float:
    cycles = sum(one.expected_cycles * (one.runs or 1) for one in cost.schedule)
    return cycles / constants.load(Chip.V5E.value).clock_hz * 1e6


def _report(name: str, rows: Sequence[Row]) -> None:
    for what in ("bound", "estimate", "cycles"):
        ratios = sorted(measured / us for measured, found in rows if (us := found[what]))
        errors = sorted(abs(1 / ratio - 1) for ratio in ratios)
        if not ratios:
            print(f"{name}, {what}: none")
            continue
        print(
            f"{name}, measured / {what}: {ratios[0]:.2f} to {ratios[-1]:.2f}, median "
            f"{median(ratios):.2f}, {len(ratios)} of {len(rows)} problems; error of the {what}: "
            f"median {median(errors):.1%}, p90 {p90(errors):.1%}"
        )


if __name__ == "__main__":
    main()
