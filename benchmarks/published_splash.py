"""Are splash attention configs in the order that was measured on a real v5e?

    python -m benchmarks published_splash --rows PATH/v5e.jsonl [--python PYTHON]

The rows are forward passes of JAX's splash attention: device time of the whole program, with jax
0.11.2. Their summary names no shape; the test beside it does, and how it calls the kernel:
``kernels/tunejax_splash.py`` declares that, and its times are compared too. The test gives the
arguments the layout that the kernel reads; arguments in their own layout XLA copies into VMEM
first. Both are compared: the summary does not say which of the two ran. Of the other runs nothing
says that they were measured; only their order is compared.
"""

import sys
from itertools import combinations
from pathlib import Path
from typing import Any

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import CompileConfig, DescribeChip, DescribeKernel, DescribeToolchain
from autotune.domain.key import Chip, KernelRef
from autotune.domain.outcome import Estimated
from autotune.domain.problem import Problem, make_config
from autotune.estimating.cost_model.error_bars import quantile
from autotune.estimating.cost_model.estimate import estimate
from autotune.wording.outcome import kind_and_reason
from benchmarks.calibration.agreement import Pair, arguments, kendall, published, ratio_error, save

_SUBSET = "tunejax_splash_v5e"
_TEST = f"{Path(__file__).with_name('kernels') / 'tunejax_splash.py'}:KERNEL"
_CATALOGUE = "jax_splash_attention"
_RUNS = (  # kernel; heads, kv_heads, seq, qk_dim, v_dim; options
    (_TEST, "32x8x4096x192x128", "arrays=as_read"),
    (_TEST, "32x8x4096x192x128", "arrays=as_made"),
    (_CATALOGUE, "32x8x4096x192x128", "mask=causal"),
    (_CATALOGUE, "48x48x4096x64x64", "mask=causal"),
    (_CATALOGUE, "32x32x4096x128x128", "mask=causal"),
    (_CATALOGUE, "16x16x8192x128x128", "mask=causal"),
    (_CATALOGUE, "8x8x8192x64x64", "mask=full"),
    (_CATALOGUE, "16x16x4096x128x128", "mask=full"),
)


def main() -> None:
    args = arguments(__doc__, save="keep the pairs of the two ways to run the test")
    rows = [r for r in published(args.rows, _SUBSET) if r["problem"]["pass"] == "fwd"]
    with CompilerPool(1, python=args.python) as pool:
        print(f"{pool.ask(DescribeToolchain())}; {len(rows)} rows of {_SUBSET}")
        tested: list[Pair] = []
        for run in _RUNS:
            pairs = _estimated(pool, rows, *run)
            _show(pairs)
            tested += pairs if run[0] == _TEST else []
        save(tested, args.save)


def _estimated(
    pool: CompilerPool, rows: list[dict[str, Any]], kernel: str, shape: str, option: str
) -> list[Pair]:
    """The rows beside their estimates as forward passes of this kernel in this shape."""
    ref = find_kernel(kernel)
    spec = pool.ask(DescribeKernel(ref=ref))
    problem = spec.problems.parse(shape, "bfloat16", [option])
    print(f"\n{spec.name} {shape}, {option}")
    return [_compare(pool, ref, problem, row, option) for row in rows]


def _compare(
    pool: CompilerPool, ref: KernelRef, problem: Problem, row: dict[str, Any], option: str
) -> Pair:
    config = make_config(row["config"])
    answer = pool.ask(CompileConfig(ref=ref, problem=problem, config=config, chip=Chip.V5E)).answer
    chip = pool.ask(DescribeChip(chip=Chip.V5E))
    outcome = estimate(*answer, chip) if isinstance(answer, tuple) else answer
    if not isinstance(outcome, Estimated):
        sys.exit(f"{problem}, {row['config']}: {kind_and_reason(outcome)}")
    return Pair(
        subset=f"{_SUBSET} {option}",
        chip="v5e",
        family="splash attention",
        group=" ".join(map(str, row["config"].values())),
        limited_by=outcome.estimate.limited_by,
        measured_us=row["time_us"],
        estimated_us=outcome.estimate.time_us,
    )


def _show(pairs: list[Pair]) -> None:
    """Times relative to the fastest row, then every pair in the wrong order."""
    first = min(pairs, key=lambda pair: pair.measured_us)
    for pair in pairs:
        print(
            f"  {pair.group:<16}{pair.measured_us:>8.0f}{pair.estimated_us:>8.0f} us"
            f"{pair.measured_us / first.measured_us:>8.3f}"
            f"{pair.estimated_us / first.estimated_us:>8.3f} of the first"
        )
    wrong = sorted(ratio_error(a, b) for a, b in combinations(pairs, 2))
    print(
        f"  Kendall {kendall(pairs):.2f}; ratios of two: three of four right within "
        f"{quantile(wrong, 0.75):.1%}, all within {wrong[-1]:.1%}"
    )
    for a, b in combinations(sorted(pairs, key=lambda pair: pair.measured_us), 2):
        if a.estimated_us > b.estimated_us:
            print(
                f"  wrong: {a.group} before {b.group}, measured "
                f"{b.measured_us / a.measured_us - 1:.1%} apart, estimated "
                f"{b.estimated_us / a.estimated_us - 1:.1%}"
            )
