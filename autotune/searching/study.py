"""The Optuna study of a search."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState, create_trial

from autotune.domain.problem import Config
from autotune.estimating.space import Candidate
from autotune.searching import sampler
from autotune.searching.surrogate import Posterior

_SAMPLERS: dict[str, type[sampler.SurrogateSampler | sampler.ListedTpe | sampler.ListedRandom]] = {
    "gp": sampler.SurrogateSampler,
    "tpe": sampler.ListedTpe,
    "random": sampler.ListedRandom,
}


class CandidateStudy:
    """An Optuna study of a list of candidates, asked and told one at a time.

    ``later``: configs with axes and VMEM limits that may come up. A candidate is given out once;
    ``add`` brings a new one in. The study is in memory: what lasts are the trials in the
    store, which a search begins with (``learn``). Not thread-safe: one loop asks and tells.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        later: Iterable[Config] = (),
        *,
        seed: int = 0,
        method: str = "gp",
    ) -> None:
        self._listed = sampler.CandidateList(candidates, later)
        self._running: dict[int, optuna.Trial] = {}
        self._tried_unasked: set[int] = set()
        with _errors_only():
            self._sampler = _SAMPLERS[method](self._listed, seed)
            # What promises most is known of the surrogate alone, whichever sampler proposes.
            self._surrogate = (
                self._sampler
                if isinstance(self._sampler, sampler.SurrogateSampler)
                else sampler.SurrogateSampler(self._listed, seed)
            )
            storage = optuna.storages.InMemoryStorage()
            self._study = optuna.create_study(storage=storage, sampler=self._sampler)

    def learn(
        self, candidate: Candidate, time_us: float | None, reason: str, *, compiles: bool = False
    ) -> None:
        """Take in an earlier trial of the same key."""
        number = self._number(candidate)
        if number in self._listed.open or number in self._tried_unasked:
            self._tried_unasked.discard(number)
            self._listed.open.discard(number)
            self._study.add_trial(
                create_trial(
                    state=_state(time_us),
                    value=time_us,
                    params=self._listed.values(number),
                    distributions=self._listed.space,
                    user_attrs={sampler.REASON: reason, sampler.COMPILES: compiles},
                )
            )

    def hold(self, candidate: Candidate) -> None:
        """It is tried without being asked for, and learned of later."""
        number = self._number(candidate)
        if number in self._listed.open:
            self._listed.open.discard(number)
            self._tried_unasked.add(number)

    def ask(self) -> Candidate | None:
        """The next candidate; None when the space is exhausted."""
        if not self._listed.open:
            return None
        with _errors_only():
            trial = self._study.ask(self._listed.space)
        number = self._listed.of(trial.params)
        assert number is not None, trial.params
        self._listed.open.discard(number)
        self._running[number] = trial
        return self._listed.candidates[number]

    def predict(self, predicted: Posterior | None) -> None:
        """What other problems say of the candidates, until the next one is brought in."""
        self._surrogate.predict(predicted)

    def is_settled(self, worth: float) -> bool:
        """Whether something is left, and nothing of it is predicted to save so much of the best
        time so far: what is ``worth`` a compile."""
        states = {trial.state for trial in self._study.get_trials(deepcopy=False)}
        known = self._listed.open and self._surrogate.is_predicted
        return bool(known) and TrialState.COMPLETE in states and self.promise() < worth

    def promise(self) -> float:
        """The share of the best time that the next candidate is expected to save; nothing where
        none is left."""
        return self._surrogate.promise(self._study) if self._listed.open else 0.0

    def tell(
        self, candidate: Candidate, time_us: float | None, reason: str, *, compiles: bool = False
    ) -> None:
        """What became of a candidate that ``ask`` gave out. None: it failed, for ``reason``; where
        it ``compiles`` for all that, larger blocks may."""
        trial = self._running.pop(self._number(candidate))
        trial.set_user_attr(sampler.REASON, reason)
        trial.set_user_attr(sampler.COMPILES, compiles)
        with _errors_only():
            self._study.tell(trial, time_us, state=_state(time_us))

    def add(self, candidate: Candidate) -> bool:
        """Bring in another candidate; False when it is in already."""
        if not self._listed.add(candidate):
            return False
        self.predict(None)
        return True

    def _number(self, candidate: Candidate) -> int:
        self.add(candidate)
        number = self._listed.number(candidate)
        assert number is not None
        return number


def try_options(
    values: Mapping[str, Sequence[str]],
    trials: int,
    seed: int,
    judge: Callable[[dict[str, str]], float | None],
) -> None:
    """Options alone: none, each value alone, then what Optuna's TPE proposes. ``judge``: the time
    under those that are set; None: it failed."""
    with _errors_only():
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        none = dict.fromkeys(values, "")
        alone = [{name: value} for name in values for value in values[name]]
        for chosen in ({}, *alone):
            study.enqueue_trial(none | chosen)
        space = {name: CategoricalDistribution(("", *values[name])) for name in values}
        for _ in range(trials):
            trial = study.ask(dict(space))
            time_us = judge({name: value for name, value in trial.params.items() if value})
            study.tell(trial, time_us, state=_state(time_us))


def _state(time_us: float | None) -> TrialState:
    return TrialState.FAIL if time_us is None else TrialState.COMPLETE


@contextmanager
def _errors_only() -> Iterator[None]:
    """Optuna tells every study and every trial that was finished before; its level is the whole
    process's, so it is put back."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
