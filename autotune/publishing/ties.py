"""Candidates that estimates cannot tell apart, and the rule that chooses among them."""

from collections.abc import Sequence
from math import prod

from autotune.domain.record import Evidence
from autotune.domain.trial import Trial
from autotune.estimating.cost_model.comparison import beats, margin

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
    narrowest = min((doubt(t) for t in trials), default=0.0)

    def order(t: Trial) -> tuple[bool, int, int, float]:
        return doubt(t) > _ALIKE * narrowest, _vmem_bytes(t), -_block_size(t), time_us(t)

    return sorted(trials, key=order)


def doubt(trial: Trial) -> float:
    """The error bar of a trial that has a time."""
    assert trial.estimate is not None
    return trial.estimate.doubt


def _vmem_bytes(trial: Trial) -> int:
    assert trial.estimate is not None
    return trial.estimate.vmem_used_bytes


def _block_size(trial: Trial) -> int:
    """The product of all sizes of the config."""
    return prod(
        value
        for _, value in trial.config.axes
        if isinstance(value, int) and not isinstance(value, bool)
    )
