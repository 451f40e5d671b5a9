"""What can be said of plain XLA without a TPU: in words, never as a prediction.

The figures behind the words: a bound, and XLA's own ``estimated_cycles`` of its operations, which
measured XLA times were :data:`LEAST` to :data:`MOST` times of (benchmarks/published_xla.py: dense
and ragged products on a real v5e; 0.93 to 1.01 for the dense ones).
"""

from autotune.candidates.roofline import peak_ops_per_s
from autotune.domain.chip import ChipInfo
from autotune.domain.compiled import XlaCost
from autotune.domain.outcome import Estimate
from autotune.domain.record import Evidence
from autotune.simulator import constants

LEAST, MOST = 0.74, 4.3

_BOUND = "its operations at the chip's peak, or its arguments and results once through HBM"


def evidence(cost: XlaCost, io_bytes: int, dtype: str, chip: ChipInfo) -> Evidence:
    """The bound as the time, XLA's own estimate beside it."""
    return Evidence(
        config=None,
        time_us=bound_us(cost, io_bytes, dtype, chip),
        expected_us=cycles_us(cost, chip) or None,
        note=f"plain XLA cannot be faster than this: {_BOUND}",
    )


def compared(estimate: Estimate, baseline: Evidence) -> str:
    """One sentence about plain XLA against an estimated kernel; the note where nothing is known."""
    if baseline.time_us is None:
        return baseline.note
    slow, fast = estimate.time_us * (1 + estimate.doubt), estimate.time_us * (1 - estimate.doubt)
    own = baseline.expected_us or 0.0
    known = f"it needs at least {baseline.time_us:.1f} µs"
    if own:
        known += (
            f", its own estimate is {own:.1f} µs and what was measured elsewhere was {LEAST} to "
            f"{MOST} times such estimates"
        )
    if slow < baseline.time_us:
        return f"plain XLA is slower: {known}"
    if slow < max(baseline.time_us, LEAST * own):
        return f"plain XLA is likely slower: {known}"
    if own and fast > own:
        return f"plain XLA is likely faster: {known}"
    return f"plain XLA may be faster, compare both on a TPU: {known}"


def bound_us(cost: XlaCost, io_bytes: int, dtype: str, chip: ChipInfo) -> float:
    """XLA's operations at peak or its arguments and results at full bandwidth, in microseconds.

    Both cores of a megacore take part. What XLA calls ``bytes accessed`` is no lower bound: it
    counts what stays on the chip between fusions.
    """
    compute = cost.flops / (peak_ops_per_s(dtype, chip) * chip.num_cores)
    return max(compute, io_bytes / (chip.hbm_bytes_per_s * chip.num_cores)) * 1e6


def cycles_us(cost: XlaCost, chip: ChipInfo) -> float:
    """XLA's own ``estimated_cycles`` of its operations one after the other, in microseconds; 0.0
    where XLA estimates nothing or the chip's clock is not known."""
    if chip.chip.value not in constants.CHIPS:
        return 0.0
    return cost.estimated_cycles / constants.load(chip.chip.value).clock_hz * 1e6
