"""From a measurement to the record's winner: who is measured, and what may be concluded."""

from collections.abc import Callable, Sequence

from autotune.domain.config import Config
from autotune.domain.measurement import Measurement, MeasurementCandidate, NotMeasured
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
        first.setdefault(candidate(trial).identity, trial)
    return list(first.values())


def candidate(trial: Trial) -> MeasurementCandidate:
    """A trial as the measuring session takes it."""
    return MeasurementCandidate(config=trial.config, program=getattr(trial.outcome, "program", ""))


def decides(run: Measurement, default: Trial | None) -> bool:
    """Whether a winner may be concluded: there is one, and the default, if it was raced, was timed
    as well."""
    timed = None if default is None else run.of(default.config)
    return run.winner is not None and (timed is None or not timed.refused)


def winner(run: Measurement, trials: Sequence[Trial], default: Trial | None) -> Trial:
    """The fastest, unless the default cannot be told from it: then the default stays."""
    timed = None if default is None else run.of(default.config)
    if default is not None and timed is not None and not timed.slower:
        return default
    assert run.winner is not None
    return next(t for t in trials if t.config == run.winner.config)
