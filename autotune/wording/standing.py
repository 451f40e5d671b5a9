"""What was measured of one config: against its estimate, and against the others of the same run."""

from dataclasses import asdict
from typing import Any

from autotune.domain.config import Config
from autotune.domain.measurement import Measurement, Timed
from autotune.domain.record import Record
from autotune.wording.units import micros

Measured = tuple[Measurement, Timed]


def measured(record: Record | None, config: Config) -> Measured | None:
    """The run that a record rests on, and what it took of the config; None where it was not
    measured."""
    run = record.measurement if record else None
    timed = run.of(config) if run else None
    return (run, timed) if run and timed else None


def measured_line(found: Measured | None, estimate_us: float | None) -> str:
    """The median, to stand beside the estimate; empty where there is none."""
    if found is None or found[1].median_us is None:
        return ""
    run, timed = found
    assert timed.median_us is not None
    text = f"{micros(timed.median_us)} by {run.method} on {run.device}"
    if estimate_us is None:
        return text
    return f"{text}, the estimate is {estimate_us / timed.median_us - 1:+.0%}"


def standing(found: Measured, default: Config | None) -> list[str]:
    """Which of the others it can be told apart from, in sentences."""
    run, timed = found
    if run.void:
        return [f"Nothing is concluded from this run: {run.void}."]
    if timed.refused:
        return [f"It was measured no further: {timed.refused}."]
    if timed.ratio is None:
        return ["It was not compared with others."]
    if timed is not run.winner:
        return [_behind(timed)] + ["It is the default."] * (timed.config == default)
    own = None if default is None else run.of(default)
    lines = ["It was measured to be the fastest.", _against("the runner-up", run.runner_up)]
    lines.append("It is the default." if own is timed else _against("the default", own))
    return lines


def measured_data(found: Measured | None) -> dict[str, Any] | None:
    """Plain JSON data: the run without the others, and every sample. Times in microseconds."""
    if found is None:
        return None
    run, timed = found
    whole, own = asdict(run), asdict(timed)
    told = {name: value for name, value in whole.items() if name != "timed"}
    return {
        **told,
        "median_us": timed.median_us,
        **{name: value for name, value in own.items() if name != "config"},
    }


def times_as_fast(run: Measurement, own: Timed | None, other: Timed | None) -> float | None:
    """By how much ``own`` is faster than ``other``: by their pairs, where they were compared."""
    if run.void or own is None or other is None:
        return None
    if own.ratio and other.ratio:
        return other.ratio / own.ratio
    if own.median_us and other.median_us:
        return other.median_us / own.median_us
    return None


def _behind(timed: Timed) -> str:
    told = "distinguishable" if timed.slower else "not distinguishable"
    return f"It takes {_ratio(timed)} times as long as the fastest, {told} from it."


def _against(name: str, other: Timed | None) -> str:
    if other is None or other.ratio is None:
        return f"It was not compared with {name}."
    told = "Distinguishable" if other.slower else "Not distinguishable"
    return f"{told} from {name}, which takes {_ratio(other)} times as long."


def _ratio(timed: Timed) -> str:
    return f"{timed.ratio:.3f} ({timed.low:.3f} to {timed.high:.3f})"
