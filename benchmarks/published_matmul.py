"""How far are estimates from matmul times that others measured on a real v5e?

    python -m benchmarks published_matmul --rows PATH/v5e.jsonl

The rows are of the matmul of the JAX documentation: wall clock of a host that dispatches for about
100 us; that constant is added to each estimate. The kernel is our ``matmul`` with the documented
blocks and grid, compiled by the installed toolchain, which is newer than the one that was measured.
"""

import sys
from typing import Any

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.compilers import DescribeToolchain
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated
from autotune.domain.problem import make_config
from autotune.searching.one_config import evaluate
from autotune.searching.subject import describe_subject
from autotune.wording.outcome import kind_and_reason
from benchmarks.calibration.agreement import Pair, arguments, published, report, save

DISPATCH_US = 100.0
_SUBSET = "jaxdocs_matmul_v5e"
_OPTIONS = {"plain": [], "transpose_rhs": ["transpose_rhs=true"], "fused_relu": ["activation=relu"]}


def main() -> None:
    args = arguments(__doc__, save="keep the pairs for the accuracy benchmark", python=False)
    rows = published(args.rows, _SUBSET)
    with CompilerPool(2) as pool:
        print(f"{pool.ask(DescribeToolchain())}; {len(rows)} rows of {_SUBSET}\n")
        print(f"{'problem':<28}{'blocks':<16}{'measured':>12}{'estimated':>12}{'ratio':>8}")
        pairs = [_compare(pool, row) for row in rows]
    report(pairs)
    save(pairs, args.save)


def _compare(pool: CompilerPool, row: dict[str, Any]) -> Pair:
    """Measured and estimated microseconds, dispatch included in both."""
    given, blocks = row["problem"], row["config"]
    shape = f"m={given['m']},k={given['k']},n={given['n']}"
    options = tuple(_OPTIONS[given["variant"]])
    words = ProblemWords(shape=shape, dtype=given["dtype"], options=options)
    subject = describe_subject(pool, find_kernel("matmul"), Chip.V5E, words)
    config = make_config(
        {"block_m": blocks["bm"], "block_k": blocks["bk"], "block_n": blocks["bn"]},
        grid_order=("m", "n", "k"),
        dimension_semantics=("parallel", "parallel", "arbitrary"),
    )
    outcome = evaluate(pool, subject, config)
    if not isinstance(outcome, Estimated):
        sys.exit(f"{subject.problem}, {config}: {kind_and_reason(outcome)}")
    measured, estimate = row["time_us"], outcome.estimate.time_us + DISPATCH_US
    print(
        f"{given['m']}^3 {given['variant']:<22}{blocks['bm']}x{blocks['bk']}x{blocks['bn']:<8}"
        f"{measured:>12.0f}{estimate:>12.0f}{estimate / measured:>8.3f}"
    )
    return Pair(
        subset=_SUBSET,
        chip="v5e",
        family="matmul",
        group=f"{given['m']} cubed {given['variant']}",
        limited_by=outcome.estimate.limited_by,
        measured_us=measured,
        estimated_us=estimate,
        overhead_us=DISPATCH_US,
    )
