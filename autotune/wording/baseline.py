"""Sentences about plain XLA against a kernel."""

from autotune.domain.measurement import Timed
from autotune.domain.outcome import Estimate
from autotune.domain.record import Evidence
from autotune.domain.xla_verdict import XlaVerdict, by_estimate, expected_range
from autotune.wording.units import micros

VERDICTS = {
    XlaVerdict.UNKNOWN: "nothing is known of plain XLA",
    XlaVerdict.SLOWER: "plain XLA is slower",
    XlaVerdict.LIKELY_SLOWER: "plain XLA is likely slower",
    XlaVerdict.MAYBE_FASTER: "plain XLA may be faster, compare both on a TPU",
    XlaVerdict.LIKELY_FASTER: "plain XLA is likely faster",
    XlaVerdict.MEASURED_SLOWER: "plain XLA was measured to be slower",
    XlaVerdict.MEASURED_FASTER: "plain XLA was measured to be faster",
    XlaVerdict.MEASURED_TIE: "plain XLA was measured, and cannot be told apart",
}


def estimated_baseline(estimate: Estimate, baseline: Evidence) -> str:
    """Against an estimated kernel; empty where nothing is known."""
    if baseline.time_us is None:
        return ""
    text = f"{VERDICTS[by_estimate(estimate, baseline)]}: it needs at least "
    text += f"{baseline.time_us:.1f} µs"
    if not baseline.expected_us:
        return text
    least, most = expected_range(baseline)
    return f"{text}, and is likely to take {max(least, baseline.time_us):.1f} to {most:.1f} µs"


def measured_baseline(verdict: XlaVerdict, xla: Timed, times: float) -> str:
    """Against a measured kernel. ``times``: how many times as long plain XLA took."""
    return f"{VERDICTS[verdict]}: it took {micros(xla.median_us)}, {times:.2f} times as long"
