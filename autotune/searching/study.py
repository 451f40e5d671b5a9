"""Optuna: studies and samplers. No other module names it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import exp, inf
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import TPESampler
from optuna.trial import TrialState, create_trial

from autotune.estimating.space import Candidate
from autotune.searching.neighbours import Neighbours
from autotune.searching.surrogate import Posterior, Surrogate

METHODS = ("gp", "tpe", "random")

_TIE = 0.05  # of a logarithmic score: candidates this close are equally good

_FIRST_LOCAL = 8  # times known before it is worth looking next to the best
_LOCAL_EVERY = 3
_TPE_TRIES = 20

_Trials = Sequence[tuple[Mapping[str, str], float | None]]  # None: it failed
_UNKNOWN = create_trial(state=TrialState.WAITING)  # what TPE is asked about


class CandidateStudy:
    """A finite list of candidates, asked and told one at a time; an Optuna study is told of each
    that is done, and learns from it.

    ``limits``: VMEM limits that may come up later. A candidate is given out once; ``add`` brings a
    new one in (a higher VMEM limit). It is in memory: what lasts are the trials in the store, which
    a search begins with (``learn``). Not thread-safe: one loop asks and tells.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        limits: Sequence[int | None] = (),
        seed: int = 0,
        method: str = "gp",
    ) -> None:
        self._candidates = list(candidates)
        self._index = {coordinates(c): n for n, c in enumerate(self._candidates)}
        self._open, self._held = set(range(len(self._candidates))), set[int]()
        self._asked: list[int] = []
        self._times: dict[int, float] = {}
        self._failed: list[int] = []
        self._untimed: list[int] = []
        self._random = np.random.default_rng(seed)
        self._surrogate: Surrogate | None = None
        self._neighbours = Neighbours(self._candidates)
        self._predicted: Posterior | None = None
        self._scores: tuple[tuple[float, ...], NDArray[np.float64]] | None = None
        self._space = _distributions(self._candidates, limits)
        self._propose = self._method(method)
        with _errors_only():
            self._sampler = TPESampler(seed=seed, multivariate=True, constant_liar=False)
            self._storage = optuna.storages.InMemoryStorage()
            self._study = optuna.create_study(storage=self._storage, sampler=self._sampler)

    def learn(
        self, candidate: Candidate, time_us: float | None, reason: str, *, compiles: bool = False
    ) -> None:
        """Take in an earlier trial of the same key."""
        number = self._number(candidate)
        if number in self._open or number in self._held:
            self._held.discard(number)
            self._settle(number, time_us, reason, compiles)

    def hold(self, candidate: Candidate) -> None:
        """It is tried without being asked for, and learned of later."""
        number = self._number(candidate)
        if number in self._open:
            self._open.discard(number)
            self._held.add(number)

    def ask(self, hints: Iterable[Candidate] = ()) -> Candidate | None:
        """The next candidate, the first of ``hints`` that was not given out where there is one;
        None when the space is exhausted."""
        if not self._open:
            return None
        hinted = (self._index.get(coordinates(one)) for one in hints)
        number = next((one for one in hinted if one in self._open), None)
        number = self._propose() if number is None else number
        self._open.discard(number)
        self._asked.append(number)
        return self._candidates[number]

    def predict(self, predicted: Posterior | None) -> None:
        """What other problems say of the candidates, until the next one is brought in."""
        self._predicted, self._scores = predicted, None

    def is_settled(self, worth: float) -> bool:
        """Whether something is left, and nothing of it is predicted to save so much of the best
        time so far: what is ``worth`` a compile."""
        known = self._open and self._predicted and self._times
        return bool(known) and self.promise() < worth

    def promise(self) -> float:
        """The share of the best time that the next candidate is expected to save; nothing where
        none is left."""
        return exp(self._scored()[sorted(self._open)].max()) if self._open else 0.0

    def tell(
        self, candidate: Candidate, time_us: float | None, reason: str, *, compiles: bool = False
    ) -> None:
        """What became of a candidate that ``ask`` gave out. None: it failed, for ``reason``; where
        it ``compiles`` for all that, larger blocks may."""
        number = self._number(candidate)
        self._asked.remove(number)
        self._settle(number, time_us, reason, compiles)

    def add(self, candidate: Candidate) -> bool:
        """Bring in another candidate; False when it is in already."""
        if coordinates(candidate) in self._index:
            return False
        self._index[coordinates(candidate)] = len(self._candidates)
        self._open.add(len(self._candidates))
        self._candidates.append(candidate)
        self._surrogate = self._predicted = None
        self._neighbours = Neighbours(self._candidates)
        return True

    def _method(self, method: str) -> Callable[[], int]:
        if method == "tpe":
            return self._drawn
        return self._any if method == "random" else self._most_promising

    def _most_promising(self) -> int:
        """One of the best scores; each third time only next to the best so far, where a smooth
        model may overlook a narrow valley. The seed decides between equals: twins in another grid
        order and candidates of which equally little is known."""
        score = self._scored()
        pool = np.array(self._near_the_best() or sorted(self._open))
        tie = 0.0 if self._predicted else _TIE  # known candidates differ by less than their gain
        best = pool[score[pool] >= score[pool].max() - tie]
        return int(self._random.choice(best))

    def _scored(self) -> NDArray[np.float64]:
        """Computed once for each state of the study. What is predicted does not change with what is
        asked: only the best of that counts."""
        known, asked = self._predicted, self._asked
        pending = float(known.mean[asked].min(initial=inf)) if known else len(asked)
        told = (self._candidates, self._times, self._failed, self._untimed)
        state = (pending, *map(len, told))
        if self._surrogate is None:
            self._surrogate = Surrogate(self._candidates)
        if self._scores is None or self._scores[0] != state:
            found = self._surrogate.scores(
                self._times,
                self._failed,
                self._asked,
                self._predicted,
                self._untimed,
            )
            self._scores = state, found
        return self._scores[1]

    def _near_the_best(self) -> list[int]:
        """Empty when it is not their turn, or when there are none left."""
        tried = len(self._times) + len(self._asked)
        if len(self._times) < _FIRST_LOCAL or tried % _LOCAL_EVERY:
            return []
        best = min(self._times, key=lambda number: self._times[number])
        return self._neighbours.of(best, self._open)

    def _any(self) -> int:
        return int(self._random.choice(sorted(self._open)))

    def _drawn(self) -> int:
        """By Optuna's own TPE, drawn from until it proposes something legal and new."""
        free = {name: some for name, some in self._space.items() if not some.single()}
        # a study that is not asked itself keeps the trials that its sampler saw the first time
        study = optuna.load_study(study_name=self._study.study_name, storage=self._storage)
        for _ in range(_TPE_TRIES if free else 0):
            drawn = self._sampler.sample_relative(study, _UNKNOWN, dict(free))
            if not drawn:  # TPE starts with random trials, too
                break
            params = {**_params(self._candidates[0]), **drawn}
            number = self._index.get(tuple(params[name] for name in self._space))
            if number in self._open:
                return number
        return self._any()

    def _number(self, candidate: Candidate) -> int:
        self.add(candidate)
        return self._index[coordinates(candidate)]

    def _settle(self, number: int, time_us: float | None, reason: str, compiles: bool) -> None:
        self._open.discard(number)
        self._study.add_trial(
            create_trial(
                state=_state(time_us),
                value=time_us,
                params=_params(self._candidates[number]),
                distributions=dict(self._space),
                user_attrs={"reason": reason},
            )
        )
        if time_us is not None:
            self._times[number] = time_us
        else:
            (self._untimed if compiles else self._failed).append(number)


def _state(time_us: float | None) -> TrialState:
    return TrialState.FAIL if time_us is None else TrialState.COMPLETE


def write_study(
    url: str, name: str, trials: Sequence[tuple[Mapping[str, str], float | None]]
) -> None:
    """An Optuna study of configs with their times, None for a failure, in a database; in the place
    of the one with this name."""
    storage = optuna.storages.RDBStorage(url)
    with _errors_only():
        with suppress(KeyError):
            optuna.delete_study(study_name=name, storage=storage)
        _fill(optuna.create_study(study_name=name, storage=storage), trials)
    storage.remove_session()
    storage.engine.dispose()


def _fill(study: optuna.Study, trials: _Trials) -> None:
    names = dict.fromkeys(name for values, _ in trials for name in values)
    choices = {n: sorted({values[n] for values, _ in trials if n in values}) for n in names}
    space = {name: CategoricalDistribution(values) for name, values in choices.items()}
    for values, time_us in trials:
        own: dict[str, BaseDistribution] = {name: space[name] for name in values}
        params = dict(values)
        study.add_trial(
            create_trial(state=_state(time_us), value=time_us, params=params, distributions=own)
        )


def axis_importances(
    timed: Sequence[tuple[Mapping[str, str], float]],
) -> dict[str, float]:
    """By PED-ANOVA: the share of each coordinate in what tells the best tenth from the others."""
    with _errors_only():
        study = optuna.create_study(storage=optuna.storages.InMemoryStorage())
        _fill(study, timed)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


class _Choices(CategoricalDistribution):
    """All trials share it. Optuna compares and copies those of each trial several times, choice by
    choice: half of what it takes for a trial."""

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    __hash__ = CategoricalDistribution.__hash__

    def __deepcopy__(self, _memo: object) -> "_Choices":
        return self


def coordinates(candidate: Candidate) -> tuple[Any, ...]:
    """A candidate's point in the study's space, in the order of its parameters."""
    return tuple(_params(candidate).values())


def _params(candidate: Candidate) -> dict[str, Any]:
    config = candidate.config
    return {
        **{f"axis:{name}": value for name, value in config.axes},
        "grid order": ">".join(config.grid_order),
        "dimension semantics": ",".join(config.dimension_semantics),
        "vmem limit": config.vmem_limit_bytes or 0,
    }


def _distributions(
    candidates: Sequence[Candidate], limits: Sequence[int | None]
) -> Mapping[str, CategoricalDistribution]:
    """Every value of each coordinate, sorted: Optuna refuses a study whose choices change."""
    columns: dict[str, set[Any]] = {"vmem limit": {limit or 0 for limit in limits}}
    for candidate in candidates:
        for name, value in _params(candidate).items():
            columns.setdefault(name, set()).add(value)
    return {
        name: _Choices(sorted(columns[name], key=lambda v: (str(type(v)), v)))
        for name in _params(candidates[0])
    }


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
