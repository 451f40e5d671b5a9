"""Optuna: studies, samplers, storage. No other module names it."""

import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.search.surrogate import Surrogate, expected_improvement
from autotune.space import Candidate

METHODS = ("gp", "tpe", "random")

_STARTUP = 5  # roofline's best before the surrogate takes over
_TPE_TRIES = 30
_STALE_AFTER = timedelta(minutes=30)

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


class CandidateStudy:
    """An Optuna study over a finite list of candidates, asked and told one at a time.

    ``limits``: VMEM limits that may come up later. ``url``: where Optuna keeps the study, None for
    memory. A candidate is given out once; ``add`` brings a new one in (a higher VMEM limit). Not
    thread-safe: one loop asks and tells.
    """

    def __init__(
        self, candidates: Sequence[Candidate], *, limits: Sequence[int | None] = (), name: str,
        url: str | None = None, seed: int = 0, method: str = "gp",
    ) -> None:  # fmt: skip
        self._candidates = list(candidates)
        self._index = {coordinates(c): n for n, c in enumerate(self._candidates)}
        self._open = set(range(len(self._candidates)))
        self._asked: dict[int, int] = {}
        self._times: dict[int, float] = {}
        self._failed: set[int] = set()
        self._method, self._seed = method, seed
        self._surrogate = Surrogate(self._candidates)
        self._space = _distributions(self._candidates, limits)
        self._study = optuna.create_study(
            study_name=name, storage=_storage(url), sampler=self._sampler(), load_if_exists=True
        )
        self._close_stale()

    def learn(self, candidate: Candidate, time_us: float | None, reason: str) -> None:
        """Take in an earlier trial of the same key; told to Optuna unless it knows it already."""
        number = self._number(candidate)
        self._settle(number, time_us)
        point = repr(coordinates(candidate))
        if any(t.user_attrs.get("point") == point for t in self._study.get_trials(deepcopy=False)):
            return
        done = time_us is not None
        self._study.add_trial(
            create_trial(
                state=TrialState.COMPLETE if done else TrialState.FAIL,
                value=time_us,
                params=_params(candidate),
                distributions=dict(self._space),
                user_attrs={"point": point, "reason": reason},
            )
        )

    def ask(self) -> Candidate | None:
        """The next candidate, or None when the space is exhausted."""
        if not self._open:
            return None
        for _ in range(_TPE_TRIES):
            trial = self._study.ask(dict(self._space))
            number = self._index.get(tuple(trial.params[name] for name in self._space))
            if number is not None and number in self._open:
                break
            self._study.tell(trial, state=TrialState.FAIL)  # proposed something illegal or known
        else:
            number = int(np.random.default_rng(self._seed).choice(sorted(self._open)))
            self._study.enqueue_trial(_params(self._candidates[number]))
            trial = self._study.ask(dict(self._space))
        trial.set_user_attr("point", repr(coordinates(self._candidates[number])))
        self._open.discard(number)
        self._asked[number] = trial.number
        return self._candidates[number]

    def tell(self, candidate: Candidate, time_us: float | None, reason: str) -> None:
        """What became of a candidate that ``ask`` gave out. None: it failed, for ``reason``."""
        number = self._number(candidate)
        self._settle(number, time_us)
        trial = self._asked.pop(number)
        if time_us is None:
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, time_us)

    def add(self, candidate: Candidate) -> bool:
        """Bring in another candidate; False when it is in already."""
        if coordinates(candidate) in self._index:
            return False
        self._index[coordinates(candidate)] = len(self._candidates)
        self._open.add(len(self._candidates))
        self._candidates.append(candidate)
        self._surrogate = Surrogate(self._candidates)
        return True

    def propose(self) -> int:
        """Index of the candidate to compile next: the roofline's first ones, then the surrogate's
        expected improvement, times the odds that it compiles."""
        pool = sorted(self._open)
        if len(self._times) < _STARTUP:
            return min(pool, key=lambda n: self._candidates[n].roofline.guess_us)
        seen = list(self._times)
        posterior = self._surrogate.posterior(seen, [self._times[n] for n in seen])
        gain = expected_improvement(posterior, min(self._times.values()))
        pending = list(self._asked)
        odds = 1.0 - self._surrogate.failure_odds(seen, [*self._failed])
        score = gain * odds
        if pending:  # do not send two compilers to the same corner
            score = score * (1.0 - self._surrogate.failure_odds(seen, pending))
        return max(pool, key=lambda n: score[n])

    def params(self, number: int) -> dict[str, Any]:
        return _params(self._candidates[number])

    def space(self) -> dict[str, BaseDistribution]:
        return dict(self._space)

    def _sampler(self) -> BaseSampler:
        if self._method == "tpe":
            return TPESampler(seed=self._seed, multivariate=True)
        if self._method == "random":
            return RandomSampler(seed=self._seed)
        return _SurrogateSampler(self)

    def _number(self, candidate: Candidate) -> int:
        self.add(candidate)
        return self._index[coordinates(candidate)]

    def _settle(self, number: int, time_us: float | None) -> None:
        self._open.discard(number)
        if time_us is None:
            self._failed.add(number)
        else:
            self._times[number] = time_us

    def _close_stale(self) -> None:
        """Trials that a killed search left running; those of another live machine are younger."""
        oldest = datetime.now() - _STALE_AFTER
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.datetime_start is not None and trial.datetime_start < oldest:
                self._study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


class _SurrogateSampler(BaseSampler):
    """Lets the study's own surrogate choose, so that Optuna sees and stores each proposal."""

    def __init__(self, owner: CandidateStudy) -> None:
        self._owner = owner

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._owner.space()

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._owner.params(self._owner.propose())

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:  # fmt: skip
        raise AssertionError("every parameter is proposed together")


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
) -> Mapping[str, BaseDistribution]:
    """Every value of each coordinate, sorted: Optuna refuses a study whose choices change."""
    columns: dict[str, set[Any]] = {"vmem limit": {limit or 0 for limit in limits}}
    for candidate in candidates:
        for name, value in _params(candidate).items():
            columns.setdefault(name, set()).add(value)
    return {
        name: CategoricalDistribution(sorted(columns[name], key=lambda v: (str(type(v)), v)))
        for name in _params(candidates[0])
    }


def _storage(url: str | None) -> optuna.storages.BaseStorage:
    if url is None:
        return optuna.storages.InMemoryStorage()
    wait = (
        {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {"pool_pre_ping": True}
    )
    return optuna.storages.RDBStorage(url, engine_kwargs=wait)
