"""How far are estimates from kernels of JAX and vLLM as somebody profiled them on a real v6e?

    python -m benchmarks published_profiles [--python PYTHON] [--save FILE]

PYTHON has ``jax[tpu]`` 0.10.2, which is what ran, and for vLLM's kernels tpu-inference (0.32.0 with
jax 0.12 is near to it). The times are medians of 50 device events of whole calls, of the public
reports ``profiles/`` of SJTU-IFS/pallas-kernel-corpus (commit 628b161, July and August 2026, libtpu
0.0.42.1). Their profiler marks each region of a kernel, which costs a kernel of many small steps
part of its time (their own figure for one: 27 %): such rows are shown and not counted.
"""

import sys
from dataclasses import dataclass

from autotune.compiling.pool import CompilerPool
from autotune.domain.compilers import DescribeToolchain
from autotune.domain.errors import AutotuneError
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimate, Estimated
from autotune.domain.problem import make_config
from autotune.searching.one_config import evaluate
from autotune.wording.outcome import kind_and_reason
from benchmarks.calibration.agreement import Pair, arguments, report, save
from benchmarks.harness.tables import SpaceCase, subject_of

_LEAST_STEP_US = 5.0
_SUBSET = "profiles_v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledCall:
    """One row of the reports. ``kernel_alone``: XLA copied an argument that nobody copies."""

    family: str
    case: SpaceCase
    config: dict[str, int]
    measured_us: float
    kernel_alone: bool = False


def _case(kernel: str, shape: str, *options: str) -> SpaceCase:
    return SpaceCase(kernel=kernel, shape=shape, chip=Chip.V6E, options=options)


def _blocks(names: str, *sizes: int) -> dict[str, int]:
    return dict(zip(names.split(), sizes, strict=True))


_FLASH, _SPLASH = "block_q block_k_major block_k block_b", "block_q block_kv block_kv_compute"
CALLS = (
    ProfiledCall(
        family="flash attention",
        case=_case("jax_flash_attention", "4x64x4096x4096x128", "causal=true"),
        config=_blocks(_FLASH, 2048, 2048, 1024, 1),
        measured_us=6352.8,
    ),
    ProfiledCall(
        family="flash attention",
        case=_case("jax_flash_attention", "1x8x1024x1024x128", "causal=true"),
        config=_blocks(_FLASH, 128, 128, 128, 1),
        measured_us=208.0,
    ),
    ProfiledCall(
        family="splash attention",
        case=_case("jax_splash_attention", "32x8x4096x128x128"),
        config=_blocks(_SPLASH, 2048, 2048, 1024),
        measured_us=761.8,
    ),
    ProfiledCall(
        family="splash attention",
        case=_case("jax_splash_attention", "32x8x4096x128x128"),
        config=_blocks(_SPLASH, 128, 128, 128),
        measured_us=13594.1,
    ),
    ProfiledCall(
        family="quantized matmul",
        case=_case("vllm_quantized_matmul", "m=1024,k=4096,n=14336"),
        config=_blocks("batch_block_size out_block_size in_block_size", 1024, 1024, 4096),
        measured_us=94.3,
    ),
    ProfiledCall(
        family="cache update",
        case=_case(
            "vllm_kv_cache_update", "tokens=4096,pages=1024,page_size=32,heads=16,head_dim=128"
        ),
        config={"slices_per_block": 8},
        measured_us=42.0,
        kernel_alone=True,
    ),
)


def main() -> None:
    args = arguments(__doc__, save="keep the pairs for the error bars", rows=False)
    pairs = []
    with CompilerPool(1, python=args.python) as pool:
        print(f"{pool.ask(DescribeToolchain())}; v6e\n")
        print(f"{'what':<18}{'blocks':<20}{'steps':>7}{'measured':>10}{'estimate':>10}{'ratio':>7}")
        for call in CALLS:
            try:
                estimate = _estimate(pool, call)
            except AutotuneError as refusal:
                print(f"{call.family:<18}{refusal}", file=sys.stderr)
                continue
            pair = _pair(call, estimate)
            steps = estimate.explanation.steps if estimate.explanation else 0
            blocks = "x".join(map(str, call.config.values()))
            print(
                f"{call.family:<18}{blocks:<20}{steps:>7}{pair.measured_us:>10.1f}"
                f"{pair.estimated_us:>10.1f}{pair.ratio:>7.3f}  {estimate.limited_by}",
                flush=True,
            )
            pairs += [pair] if pair.measured_us >= _LEAST_STEP_US * steps else []
    if pairs:
        save(pairs, args.save)
        report(pairs)


def _estimate(pool: CompilerPool, call: ProfiledCall) -> Estimate:
    """Raises ``AutotuneError`` where there is none."""
    outcome = evaluate(pool, subject_of(pool, call.case), make_config(call.config))
    if not isinstance(outcome, Estimated):
        raise AutotuneError(kind_and_reason(outcome))
    return outcome.estimate


def _pair(call: ProfiledCall, estimate: Estimate) -> Pair:
    return Pair(
        subset=_SUBSET,
        chip=Chip.V6E.value,
        family=call.family,
        group=call.family,
        limited_by=estimate.limited_by,
        measured_us=call.measured_us,
        estimated_us=estimate.kernel_us if call.kernel_alone else estimate.time_us,
    )
