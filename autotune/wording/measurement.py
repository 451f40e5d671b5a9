"""What was measured of one config: against its estimate, and against the others of the same run."""

from autotune.domain.calibration import MeasuredBars
from autotune.domain.evidence import MeasuredConfig, Measurement, Timed
from autotune.domain.problem import Config
from autotune.wording.units import counted, micros


def programs_of(bars: MeasuredBars) -> str:
    """Which measured programs error bars are from."""
    others = f", {bars.from_file} of them as a file has it" if bars.from_file else ""
    programs, kernels = counted(bars.rows, "program"), counted(bars.families, "kernel")
    return f"{programs} of {kernels}, timed on a TPU{others}"


def measured_line(measured: MeasuredConfig | None, estimate_us: float | None) -> str:
    """The median, to stand beside the estimate; empty where there is none."""
    if measured is None or measured.timed.median_us is None:
        return ""
    run, timed = measured
    assert timed.median_us is not None
    text = f"{micros(timed.median_us)} by {run.method} on {run.device}"
    if estimate_us is None:
        return text
    return f"{text}, the estimate is {estimate_us / timed.median_us - 1:+.0%}"


def against_others(measured: MeasuredConfig, default: Config | None) -> list[str]:
    """Which of the others it can be told apart from, in sentences."""
    run, timed = measured
    if run.void:
        return [f"Nothing is concluded from this run: {run.void}."]
    if timed.refused:
        return [f"It was measured no further: {timed.refused}."]
    if timed.ratio is None:
        return ["It was not compared with others."]
    if timed is not run.winner:
        return [_behind(timed)] + ["It is the default."] * (timed.config == default)
    measured_default = None if default is None else run.of(default)
    lines = ["It was measured to be the fastest.", _against("the runner-up", run.runner_up)]
    lines.append(
        "It is the default."
        if measured_default is timed
        else _against("the default", measured_default)
    )
    return lines


def run_line(run: Measurement) -> str:
    """On what, how, and how it ended."""
    rounds = "1 round" if run.set_aside == 1 else f"{run.set_aside} rounds"
    aside = f", {rounds} in a slower state set aside" if run.set_aside else ""
    return (
        f"{run.method[:1].upper()}{run.method[1:]} on {run.device}: {run.count} samples, "
        f"{run.stopped_by}{aside}; the default took {run.drift:+.1%} at the end; seed {run.seed}."
    )


def ratio_interval(timed: Timed) -> str:
    """Of its time over the fastest one's; a dash where there is none."""
    if timed.low is None or timed.high is None or timed.low == timed.high:
        return "–"
    return f"{timed.low:.3f} to {timed.high:.3f}"


def told_apart(timed: Timed) -> str:
    """Whether it is from the fastest, in a cell of a table."""
    if timed.refused:
        return f"measured no further: {timed.refused}"
    if timed.ratio is None:
        return "not compared"
    if timed.ratio == timed.low == timed.high:
        return "the fastest"
    return "yes, slower" if timed.slower else "no"


def _behind(timed: Timed) -> str:
    apart = "distinguishable" if timed.slower else "not distinguishable"
    return f"It takes {_ratio(timed)} times as long as the fastest, {apart} from it."


def _against(name: str, other: Timed | None) -> str:
    if other is None or other.ratio is None:
        return f"It was not compared with {name}."
    apart = "Distinguishable" if other.slower else "Not distinguishable"
    return f"{apart} from {name}, which takes {_ratio(other)} times as long."


def _ratio(timed: Timed) -> str:
    return f"{timed.ratio:.3f} ({timed.low:.3f} to {timed.high:.3f})"
