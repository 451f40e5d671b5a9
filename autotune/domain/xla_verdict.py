"""Plain XLA against a kernel: what can be concluded, with a TPU and without."""

from enum import StrEnum

from autotune.domain.evidence import Timed
from autotune.domain.outcome import Estimate
from autotune.domain.record import Evidence

LEAST, MOST = 0.74, 4.3
"""What measured XLA times were of XLA's own ``estimated_cycles``, which records of older versions
hold (dense and ragged products on a real v5e)."""


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
    """From a lower bound of XLA's time and an estimate of it."""
    if baseline.time_us is None:
        return XlaVerdict.UNKNOWN
    slow, fast = estimate.time_us * (1 + estimate.doubt), estimate.time_us * (1 - estimate.doubt)
    least, most = expected_range(baseline)
    if baseline.expected_error is None:
        most = baseline.expected_us or 0.0  # of its own cycles the range is too wide to say more
    if slow < baseline.time_us:
        return XlaVerdict.SLOWER
    if slow < max(baseline.time_us, least):
        return XlaVerdict.LIKELY_SLOWER
    return XlaVerdict.LIKELY_FASTER if most and fast > most else XlaVerdict.MAYBE_FASTER


def expected_range(evidence: Evidence) -> tuple[float, float]:
    """Microseconds between which a time is likely that was only expected: plain XLA's, or that of a
    default that is predicted; 0.0 where nothing is known."""
    middle_us, error = evidence.expected_us or 0.0, evidence.expected_error
    if error is None:
        return LEAST * middle_us, MOST * middle_us
    return middle_us * (1 - error), middle_us * (1 + error)


def by_measurement(xla: Timed) -> XlaVerdict:
    """Plain XLA in the race of the kernel's configs."""
    if xla.slower:
        return XlaVerdict.MEASURED_SLOWER
    faster = xla.high is not None and xla.high < 1
    return XlaVerdict.MEASURED_FASTER if faster else XlaVerdict.MEASURED_TIE
