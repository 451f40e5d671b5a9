"""From a measurement to the record's winner: who is measured, and what may be concluded."""

from collections.abc import Callable, Sequence

from autotune.domain.config import Config
from autotune.domain.measurement import Measurement, MeasurementCandidate, NotMeasured, Timed
from autotune.domain.trial import Trial
from autotune.publishing.ties import ties, time_us

Measure = Callable[[Sequence[MeasurementCandidate], Config | None], Measurement | NotMeasured]
"""Races candidates, the default named, on the accelerator that is attached."""

_MOST = 8
_AT_LEAST = 4


def shortlist(trials: Sequence[Trial], default: Trial | None) -> list[Trial]:
    """What to measure: the ties of the fastest estimate, at least the best few; the default at
    the end."""
    timed = different(sorted((t for t in trials if t.estimate), key=time_us))
    count = max(_AT_LEAST, len(ties(timed)) if timed else 0)
    best = [t for t in timed[: min(count, _MOST)] if default is None or t.number != default.number]
    return best if default is None or default.estimate is None else [*best, default]


def different(trials: Sequence[Trial]) -> list[Trial]:
    """The first of each program: what compiles to the same is right or wrong together."""
    first: dict[str, Trial] = {}
    for trial in trials:
        first.setdefault(getattr(trial.outcome, "program", ""), trial)
    return list(first.values())


def candidate(trial: Trial) -> MeasurementCandidate:
    """A trial as the measuring session takes it."""
    return MeasurementCandidate(config=trial.config, program=getattr(trial.outcome, "program", ""))


def unusable(found: Measurement | NotMeasured, default: Trial | None) -> str:
    """Why nothing is published by a measurement, or an empty text."""
    if isinstance(found, NotMeasured):
        return found.reason
    if found.void:
        return found.void
    if found.winner is None:
        return next((t.refused for t in found.timed if t.refused), "no config could be timed")
    own = None if default is None else found.of(default.config)
    if own is not None and own.refused:
        return f"the default could not be measured: {own.refused}"
    return ""


def winner(found: Measurement, trials: Sequence[Trial], default: Trial | None) -> Trial:
    """The fastest, unless the default cannot be told from it: then the default stays."""
    own = None if default is None else found.of(default.config)
    if default is not None and own is not None and not own.slower:
        return default
    assert found.winner is not None
    return next(t for t in trials if t.config == found.winner.config)


def reason(found: Measurement, chosen: Trial, default: Trial | None) -> str:
    """What the record says of its winner."""
    best = found.winner
    assert best is not None
    own = None if default is None else found.of(default.config)
    if default is not None and chosen.number == default.number:
        if best.config == default.config:
            return f"the default was measured to be the fastest{_against_next(found)}"
        return "nothing was measured to be faster than the default by more than the noise"
    if own is None or own.ratio is None:
        said = "measured to be the fastest; the default was no alternative"
    else:
        said = f"measured {own.ratio:.2f} times as fast as the default ({_interval(own)})"
    return said + _against_next(found)


def _against_next(found: Measurement) -> str:
    other = found.runner_up
    if other is None or other.ratio is None:
        return ""
    told = "distinguishable" if other.slower else "not distinguishable"
    return f"; the runner-up takes {other.ratio:.3f} times as long ({_interval(other)}), {told}"


def _interval(timed: Timed) -> str:
    return f"{timed.low:.3f} to {timed.high:.3f}"
