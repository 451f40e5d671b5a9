"""Which candidates may win, by their estimates or by a measurement, and which of them does."""

from collections.abc import Callable, Sequence
from math import prod

from autotune.domain.comparison import beats, margin
from autotune.domain.evidence import Measurement, MeasurementCandidate, NotMeasured
from autotune.domain.problem import Config
from autotune.domain.record import Evidence, Trial

_ALIKE = 2.0  # error bars of two kinds of kernels differ by more, of one kind by less


def time_us(trial: Trial) -> float:
    """The estimated time of a trial that has one."""
    assert trial.estimate is not None
    return trial.estimate.time_us


def is_faster(a: Trial, b: Trial) -> bool:
    """Whether ``a`` is faster than ``b`` by more than the model can mistake."""
    assert a.estimate is not None and b.estimate is not None
    return time_us(a) < time_us(b) * (1 - margin(a.estimate, b.estimate))


def ties(trials: Sequence[Trial]) -> list[Trial]:
    """The trials that the fastest cannot be told apart from, itself first, then by time."""
    timed = sorted((trial for trial in trials if trial.estimate), key=time_us)
    return [trial for trial in timed if not is_faster(timed[0], trial)]


def better(
    trials: Sequence[Trial], default: Trial | None, predicted: Evidence | None = None
) -> list[Trial]:
    """The trials that are faster than the default for sure, the fastest first; all without one.
    ``predicted``: of a default that was not compiled."""
    timed = sorted((t for t in trials if t.estimate), key=time_us)
    if default is None and predicted is not None and predicted.is_predicted:
        return [t for t in timed if t.estimate and beats(t.estimate, predicted)]
    if default is None or default.estimate is None:
        return timed
    return [t for t in timed if is_faster(t, default)]


def contenders(
    trials: Sequence[Trial], default: Trial | None, predicted: Evidence | None = None
) -> tuple[Trial, ...]:
    """What could win by estimate; where only the default can, what it cannot be told from."""
    return tuple(ties(better(trials, default, predicted)) or ties(trials))


def by_rule(trials: Sequence[Trial]) -> list[Trial]:
    """Ties in the order of preference that ``wording.publication.TIE_RULE`` says in words; the
    faster first where all is equal."""
    narrowest = min((t.estimate.doubt for t in trials if t.estimate), default=0.0)

    def order(t: Trial) -> tuple[bool, int, int, float]:
        assert t.estimate is not None
        blocks = prod(value for _, value in t.config.axes if type(value) is int)
        is_doubtful = t.estimate.doubt > _ALIKE * narrowest
        return is_doubtful, t.estimate.vmem_used_bytes, -blocks, t.estimate.time_us

    return sorted(trials, key=order)


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


def measured_winner(run: Measurement, trials: Sequence[Trial], default: Trial | None) -> Trial:
    """The fastest, unless the default cannot be told from it: then the default stays."""
    timed = None if default is None else run.of(default.config)
    if default is not None and timed is not None and not timed.slower:
        return default
    assert run.winner is not None
    return next(t for t in trials if t.config == run.winner.config)
