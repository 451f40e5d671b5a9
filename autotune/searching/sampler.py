"""Optuna samplers that propose one of a list of candidates.

Optuna's own samplers draw from a product of choices, most of which is illegal. These three propose
what is legal and was not given out: ``SurrogateSampler`` by our model of the times, ``ListedTpe``
by Optuna's TPE, ``ListedRandom`` by chance. All learn from the trials of their study.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from math import exp, inf
from typing import Any, Self

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from autotune.domain.problem import Config
from autotune.estimating.space import Candidate
from autotune.searching.surrogate import Neighbours, Posterior, Surrogate

REASON, COMPILES = "reason", "compiles"
"""Attributes of a trial: why it failed, and whether it compiled for all that."""

_TIE = 0.05  # of a logarithmic score: candidates this close are equally good
_FIRST_LOCAL = 8  # times known before it is worth looking next to the best
_LOCAL_EVERY = 3
_TPE_TRIES = 20

Space = dict[str, BaseDistribution]


class CandidateList:
    """Candidates by their coordinates in Optuna's ``space``; ``free``: the part of it that has more
    than one value. ``open``: the numbers of those that were not given out. ``later``: configs with
    what may come up: higher VMEM limits, and what was not traced yet."""

    def __init__(self, candidates: Sequence[Candidate], later: Iterable[Config] = ()) -> None:
        self.candidates = list(candidates)
        rows = [parameters(candidate.config) for candidate in self.candidates]
        self._absent = dict.fromkeys((name for row in rows for name in row), "")
        rows += map(parameters, later)
        rows = [self._absent | row for row in rows]
        self._choices = [{row[name] for row in rows} for name in rows[0]]
        self.space = _distributions(rows[0], self._choices)
        self.free = {name: choices for name, choices in self.space.items() if not choices.single()}
        self.open = set(range(len(self.candidates)))
        self._index = {self._coordinates(c): n for n, c in enumerate(self.candidates)}

    def number(self, candidate: Candidate) -> int | None:
        return self._index.get(self._coordinates(candidate))

    def of(self, values: Mapping[str, Any]) -> int | None:
        """The number of the candidate with these values."""
        return self._index.get(tuple(values[name] for name in self.space))

    def values(self, number: int) -> dict[str, Any]:
        """Its point in Optuna's space. Of a compiler option that it does not set an empty text."""
        return self._absent | parameters(self.candidates[number].config)

    def add(self, candidate: Candidate) -> bool:
        """Another candidate; False when it is in the list already, or Optuna's space has no place
        for it: that cannot change any more."""
        point = self._coordinates(candidate)
        if point in self._index or any(
            v not in known for v, known in zip(point, self._choices, strict=True)
        ):
            return False
        self._index[point] = len(self.candidates)
        self.open.add(len(self.candidates))
        self.candidates.append(candidate)
        return True

    def _coordinates(self, candidate: Candidate) -> tuple[Any, ...]:
        """In the order of the space."""
        return tuple((self._absent | parameters(candidate.config)).values())


class _Listed(BaseSampler):
    """Proposes a candidate as a whole: all its values are sampled together."""

    def __init__(self, listed: CandidateList, seed: int) -> None:
        self._listed = listed
        self._random = np.random.default_rng(seed)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> Space:  # noqa: ARG002 (Optuna's signature)
        return self._listed.free

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,  # noqa: ARG002 (Optuna's signature)
        search_space: Space,
    ) -> dict[str, Any]:
        values = self._listed.values(self.propose(study))
        return {name: values[name] for name in search_space}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        raise NotImplementedError("a candidate is proposed as a whole")

    def propose(self, study: optuna.Study) -> int:
        """The number of an open candidate."""
        raise NotImplementedError


class ListedRandom(_Listed):
    """Any of the open candidates."""

    def propose(self, study: optuna.Study) -> int:  # noqa: ARG002 (as the others)
        return _any(self._random, self._listed)


class ListedTpe(ListedRandom, TPESampler):
    """Optuna's TPE, drawn from until it proposes something legal and new."""

    def __init__(self, listed: CandidateList, seed: int) -> None:
        TPESampler.__init__(self, seed=seed, multivariate=True, constant_liar=False)
        super().__init__(listed, seed)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: Space
    ) -> dict[str, Any]:
        first = self._listed.values(0)
        for _ in range(_TPE_TRIES if search_space else 0):
            drawn = TPESampler.sample_relative(self, study, trial, search_space)
            if not drawn:  # TPE starts with random trials, too
                break
            if self._listed.of({**first, **drawn}) in self._listed.open:
                return drawn
        return super().sample_relative(study, trial, search_space)


class SurrogateSampler(_Listed):
    """The candidate whose compilation promises most, by a model of the times (``surrogate.py``) or
    by what other problems of the kernel say (``predict``)."""

    def __init__(self, listed: CandidateList, seed: int) -> None:
        super().__init__(listed, seed)
        self._known = _Known(listed)
        self._predicted: Posterior | None = None
        self._models: tuple[int, Surrogate, Neighbours] | None = None
        self._scores: tuple[tuple[float, ...], NDArray[np.float64]] | None = None

    def predict(self, predicted: Posterior | None) -> None:
        """What other problems say of the candidates, until another one is added."""
        self._predicted, self._scores = predicted, None

    @property
    def is_predicted(self) -> bool:
        return self._predicted is not None

    def propose(self, study: optuna.Study) -> int:
        """One of the best scores; each third time only next to the best so far, where a smooth
        model may overlook a narrow valley. The seed decides between equals: twins in another grid
        order and candidates of which equally little is known."""
        known = self._known.read(study)
        score = self._scored(known)
        pool = np.array(self._near_the_best(known) or sorted(self._listed.open))
        tie = 0.0 if self._predicted else _TIE  # known candidates differ by less than their gain
        best = pool[score[pool] >= score[pool].max() - tie]
        return int(self._random.choice(best))

    def promise(self, study: optuna.Study) -> float:
        """The share of the best time that the next candidate is expected to save."""
        scores = self._scored(self._known.read(study))
        return exp(scores[sorted(self._listed.open)].max())

    def _scored(self, known: "_Known") -> NDArray[np.float64]:
        """Computed once for each state of the study. What is predicted does not change with what is
        asked: only the best of that counts."""
        surrogate, _ = self._fitted()
        expected = self._predicted
        pending = (
            float(expected.mean[known.running].min(initial=inf)) if expected else len(known.running)
        )
        state = (
            pending,
            len(self._listed.candidates),
            *map(len, (known.times, known.failed, known.untimed)),
        )
        if self._scores is None or self._scores[0] != state:
            scores = surrogate.scores(
                known.times, known.failed, known.running, expected, known.untimed
            )
            self._scores = state, scores
        return self._scores[1]

    def _fitted(self) -> tuple[Surrogate, Neighbours]:
        """Models of the candidates that there are by now."""
        candidates = self._listed.candidates
        if self._models is None or self._models[0] != len(candidates):
            self._models = len(candidates), Surrogate(candidates), Neighbours(candidates)
        return self._models[1:]

    def _near_the_best(self, known: "_Known") -> list[int]:
        """Empty when it is not their turn, or when there are none left."""
        tried = len(known.times) + len(known.running)
        if len(known.times) < _FIRST_LOCAL or tried % _LOCAL_EVERY:
            return []
        best = min(known.times, key=lambda number: known.times[number])
        return self._fitted()[1].of(best, self._listed.open)


class _Known:
    """What the trials of one study say, by the numbers of candidates. ``times``: in microseconds.

    A finished trial does not change, so each is read once: reading all of them for every proposal
    takes 4 ms where there are 1,800.
    """

    def __init__(self, listed: CandidateList) -> None:
        self._listed = listed
        self._read: set[int] = set()
        self.times: dict[int, float] = {}
        self.running: list[int] = []
        self.failed: list[int] = []
        self.untimed: list[int] = []

    def read(self, study: optuna.Study) -> Self:
        """With what has come in since the last time."""
        self.running = []
        for trial in study.get_trials(deepcopy=False):
            if trial.number in self._read:
                continue
            if len(trial.params) < len(self._listed.space):  # the one that is being sampled
                continue
            number = self._listed.of(trial.params)
            assert number is not None, trial.params
            if trial.state is TrialState.RUNNING:
                self.running.append(number)
                continue
            self._read.add(trial.number)
            if trial.state is TrialState.COMPLETE and trial.value is not None:
                self.times[number] = trial.value
            else:
                (self.untimed if trial.user_attrs[COMPILES] else self.failed).append(number)
        return self


def _any(random: np.random.Generator, listed: CandidateList) -> int:
    return int(random.choice(sorted(listed.open)))


class _Choices(CategoricalDistribution):
    """All trials share it. Optuna compares and copies those of each trial several times, choice by
    choice: half of what it takes for a trial."""

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    __hash__ = CategoricalDistribution.__hash__

    def __deepcopy__(self, _memo: object) -> "_Choices":
        return self


def parameters(config: Config) -> dict[str, Any]:
    """A candidate's as those of a trial."""
    return {
        **{f"axis:{name}": value for name, value in config.axes},
        "grid order": ">".join(config.grid_order),
        "dimension semantics": ",".join(config.dimension_semantics),
        "vmem limit": config.vmem_limit_bytes or 0,
    }


def _distributions(names: Iterable[str], choices: Iterable[Set[Any]]) -> Space:
    """Every value of each coordinate, sorted: Optuna refuses a study whose choices change."""
    return {
        name: _Choices(sorted(values, key=lambda v: (str(type(v)), v)))
        for name, values in zip(names, choices, strict=True)
    }
