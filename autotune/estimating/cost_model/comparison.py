"""Which of two estimates is the faster, by how much, and whether that can be told at all."""

from autotune.domain.comparison import Comparison, NamedEstimate, margin
from autotune.domain.explanation import PARTS, Explanation
from autotune.domain.outcome import Estimate
from autotune.domain.record import Evidence
from autotune.domain.xla_verdict import expected_range


def beats(estimate: Estimate, predicted: Evidence) -> bool:
    """Whether it is faster than what is predicted of a config that was not compiled, by more than
    the model can mistake and the prediction may be wrong by."""
    error = estimate.resolution or estimate.doubt
    return estimate.time_us < expected_range(predicted)[0] * (1 - error)


def compare(first: NamedEstimate, other: NamedEstimate, *, alike: bool = True) -> Comparison:
    """Of two that take equally long, the first counts as the faster. ``alike`` as in ``margin``."""
    faster, slower = sorted((first, other), key=lambda named: named.estimate.time_us)
    fast, slow = faster.estimate, slower.estimate
    least = margin(fast, slow, alike=alike)
    return Comparison(
        faster=faster,
        slower=slower,
        times_as_fast=slow.time_us / fast.time_us,
        margin=least,
        tie=fast.time_us >= slow.time_us * (1 - least),
        gained_us=_gained(fast.explanation, slow.explanation),
    )


def _gained(fast: Explanation | None, slow: Explanation | None) -> tuple[tuple[str, float], ...]:
    if fast is None or slow is None:
        return ()
    return tuple((name, slow.part_us(name) - fast.part_us(name)) for name in PARTS)
