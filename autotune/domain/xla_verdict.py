"""Plain XLA against a kernel: what can be concluded, with a TPU and without."""

from enum import StrEnum

from autotune.domain.measurement import Timed
from autotune.domain.outcome import Estimate
from autotune.domain.record import Evidence

LEAST, MOST = 0.74, 4.3
"""What measured XLA times were of XLA's own ``estimated_cycles`` (benchmarks/published_xla.py:
dense and ragged products on a real v5e; 0.93 to 1.01 for the dense ones)."""


class XlaVerdict(StrEnum):
    """Of plain XLA."""

    UNKNOWN = "unknown"
    SLOWER = "slower"
    LIKELY_SLOWER = "likely slower"
    MAYBE_FASTER = "maybe faster"
    LIKELY_FASTER = "likely faster"
    MEASURED_SLOWER = "measured slower"
    MEASURED_FASTER = "measured faster"
    MEASURED_TIE = "measured tie"


def by_estimate(estimate: Estimate, baseline: Evidence) -> XlaVerdict:
    """From a lower bound of XLA's time and XLA's own estimate: never a prediction."""
    if baseline.time_us is None:
        return XlaVerdict.UNKNOWN
    slow, fast = estimate.time_us * (1 + estimate.doubt), estimate.time_us * (1 - estimate.doubt)
    own = baseline.expected_us or 0.0
    if slow < baseline.time_us:
        return XlaVerdict.SLOWER
    if slow < max(baseline.time_us, LEAST * own):
        return XlaVerdict.LIKELY_SLOWER
    return XlaVerdict.LIKELY_FASTER if own and fast > own else XlaVerdict.MAYBE_FASTER


def by_measurement(xla: Timed) -> XlaVerdict:
    """Plain XLA in the race of the kernel's configs."""
    if xla.slower:
        return XlaVerdict.MEASURED_SLOWER
    faster = xla.high is not None and xla.high < 1
    return XlaVerdict.MEASURED_FASTER if faster else XlaVerdict.MEASURED_TIE
