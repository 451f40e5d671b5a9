"""One search: explore, reuse, ask, compile, keep, tell, until a limit is reached."""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from math import inf
from typing import Protocol

from autotune.candidates import rules
from autotune.candidates.space import Candidate, Space, climb, limit_named
from autotune.candidates.survey import survey
from autotune.candidates.vmem import limit_bytes, limit_rungs
from autotune.cost_model.estimate import MODEL, estimate
from autotune.domain.chip import ChipInfo
from autotune.domain.compiled import Attempt
from autotune.domain.config import Config
from autotune.domain.job import DEFAULT_TRIALS
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.outcome import Estimated, Outcome, OutOfVmem
from autotune.domain.problem import Problem
from autotune.domain.record import Record
from autotune.domain.toolchain import Toolchain
from autotune.domain.trial import Trial
from autotune.errors import StoreError
from autotune.ports import SearchStore
from autotune.ports.compilers import CandidateCompiler
from autotune.searching.study import CandidateStudy, coordinates

_MOST_ELSEWHERE = 3  # winners of other toolchains and chips: they are often the same


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """When a search stops. ``trials`` counts all trials of the key, earlier runs included.
    ``stop`` is asked about every second: true ends it as Ctrl-C does."""

    trials: int = DEFAULT_TRIALS
    timeout_s: float | None = None
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is tuned, for what."""

    ref: KernelRef
    spec: KernelSpec
    problem: Problem
    chip: ChipInfo
    toolchain: Toolchain

    @property
    def key(self) -> Key:
        return Key(
            kernel=self.spec.name,
            fingerprint=self.spec.fingerprint,
            problem=self.problem,
            chip=self.chip.chip,
            toolchain=self.toolchain,
        )


class Observer(Protocol):
    """Who watches a search: a progress bar, a log, a test."""

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None: ...

    def trial_done(self, trial: Trial) -> None: ...


@dataclass(slots=True, kw_only=True)
class SearchResult:
    """All trials of the key, and how the search ended: exhausted, trials, timeout, interrupted.
    ``start_from``: configs that were given, which are among the trials."""

    subject: Subject
    space: Space
    trials: list[Trial]
    reused: int
    stopped_by: str
    seconds: float
    start_from: tuple[Config, ...] = ()


def run_search(
    compilers: CandidateCompiler,
    store: SearchStore,
    subject: Subject,
    space: Space,
    limits: SearchLimits,
    observer: Observer,
    *,
    study_url: str | None,
    seed: int = 0,
    method: str = "gp",
    start_from: Sequence[Config] = (),
) -> SearchResult:
    """Search until a limit; every finished trial is in the store before the next one starts.

    ``start_from``: configs that are tried right after the default, whether they are among the
    candidates or not. After them what won for the problem under other toolchains and on other
    chips, where it is a candidate.
    """
    started = time.monotonic()
    store.save_kernel(subject.spec)
    if space.judged:
        store.save_refusals(subject.key, survey(space, subject.chip))
    earlier = list(store.trials(subject.key))
    study = CandidateStudy(
        space.candidates,
        limits=limit_rungs(subject.chip),
        name=_study_name(subject, space),
        url=study_url,
        seed=seed,
        method=method,
    )
    with closing(study):
        loop = _Loop(compilers, store, subject, space, study, observer, list(earlier))
        loop.reuse()
        goal = max(len(earlier), min(limits.trials, loop.reachable))
        observer.space_ready(space, earlier, goal)
        elsewhere = winners_elsewhere(store.records(subject.spec.name), subject.key, space)
        stopped_by = loop.run(limits, started, [*start_from, *elsewhere])
    return SearchResult(
        subject=subject,
        space=space,
        trials=loop.trials,
        reused=len(earlier),
        stopped_by=stopped_by,
        seconds=time.monotonic() - started,
        start_from=tuple(start_from),
    )


@dataclass(slots=True)
class _Loop:
    compilers: CandidateCompiler
    store: SearchStore
    subject: Subject
    space: Space
    study: CandidateStudy
    observer: Observer
    trials: list[Trial]
    _running: dict[Future[Attempt], Candidate] = field(default_factory=dict)

    @property
    def reachable(self) -> int:
        """Trials that this space can still give, those done included."""
        return max(len(self.space.candidates) + (self._default() is None), len(self.trials))

    def reuse(self) -> None:
        """Take in what earlier runs of the same key have found; what an older model estimated is
        estimated again: times of two models are not to be compared."""
        for place, trial in enumerate(self.trials):
            if trial.estimate is not None and trial.estimate.model != MODEL:
                outcome = evaluate(self.compilers, self.subject, trial.config)
                self.store.replace_outcome(self.subject.key, trial.number, outcome)
                self.trials[place] = replace(trial, outcome=outcome)
        for trial in self.trials:
            candidate = self._candidate(trial.config)
            if candidate is not None:
                self._learn(candidate, trial.outcome)

    def run(self, limits: SearchLimits, started: float, start_from: Sequence[Config] = ()) -> str:
        """Why it stopped. Ctrl-C ends it too: what is finished is kept."""
        deadline = inf if limits.timeout_s is None else started + limits.timeout_s
        try:
            if not any(trial.number == 0 for trial in self.trials):
                self._default_first()
            for config in chain(self._own_blocks(), start_from):
                is_over = limits.stop() or time.monotonic() > deadline
                if is_over or len(self.trials) >= limits.trials:
                    break
                self._try(config)
            while not limits.stop():
                reason = self._fill(limits.trials, deadline)
                if not self._running:
                    return reason
                self._collect()
            self._keep_finished()
            return "interrupted"
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt):
                self._keep_finished()
            return "interrupted"
        except BaseException:
            with suppress(StoreError):  # it may be the store that is lost
                self._keep_finished()
            raise

    def _keep_finished(self) -> None:
        """Candidates that were done when the search was stopped are trials like all others."""
        for future, candidate in self._running.items():
            finished = future.done() and not future.cancelled() and future.exception() is None
            if finished and all(trial.config != candidate.config for trial in self.trials):
                self._keep(candidate.config, *self._judged(future))

    def _default_first(self) -> None:
        """Trial 0 is the default config, whatever becomes of it."""
        verdict = self.space.default_verdict
        candidate = self._default()
        if verdict is not None:
            self._keep(self.space.default, verdict, 0.0)
            return
        assert candidate is not None
        outcome, seconds = self._judged(self._attempt(candidate.config))
        self._keep(candidate.config, outcome, seconds)
        self._learn(candidate, outcome)

    def _own_blocks(self) -> Iterator[Config]:
        """The blocks of the default, where they do not fit as they are: under one higher limit
        after the other until they do."""
        default, chip = self.space.default, self.subject.chip

        def is_own(config: Config) -> bool:
            return (config.axes, config.grid_order) == (default.axes, default.grid_order)

        while tried := [trial for trial in self.trials if is_own(trial.config)]:
            if not all(isinstance(trial.outcome, OutOfVmem) for trial in tried):
                return
            highest = max(limit_bytes(t.config.vmem_limit_bytes, chip) for t in tried)
            limits = {
                limit: candidate.config
                for candidate in self.space.candidates[::-1]
                if is_own(candidate.config)
                and (limit := limit_bytes(candidate.config.vmem_limit_bytes, chip)) > highest
            }
            if not limits:
                return
            yield limits[min(limits)]

    def _try(self, config: Config) -> None:
        """One config now, unless it was tried."""
        if any(trial.config == config for trial in self.trials):
            return
        candidate = self._candidate(config)
        outcome, seconds = self._judged(self._attempt(config))
        self._keep(config, outcome, seconds)
        if candidate is not None:
            self._learn(candidate, outcome)

    def _fill(self, goal: int, deadline: float) -> str:
        """Keep every compiler busy; the reason not to start more, or an empty string."""
        while len(self._running) < self.compilers.size:
            if len(self.trials) + len(self._running) >= goal:
                return "trials"
            if time.monotonic() > deadline:
                return "timeout"
            candidate = self.study.ask()
            if candidate is None:
                return "exhausted"
            self._running[self._attempt(candidate.config)] = candidate
        return ""

    def _collect(self) -> None:
        done, _ = wait(self._running, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in done:
            candidate = self._running[future]
            outcome, seconds = self._judged(future)
            self._keep(candidate.config, outcome, seconds)
            del self._running[future]
            self.study.tell(candidate, _time(outcome), outcome.reason)
            self._climb(candidate, outcome)

    def _attempt(self, config: Config) -> Future[Attempt]:
        return compile_config(self.compilers, self.subject, config)

    def _judged(self, future: Future[Attempt]) -> tuple[Outcome, float]:
        """The outcome of a candidate and the wall clock that it took."""
        attempt = future.result()
        return outcome_of(attempt, self.subject.chip), attempt.seconds

    def _learn(self, candidate: Candidate, outcome: Outcome) -> None:
        self.study.learn(candidate, _time(outcome), outcome.reason)
        self._climb(candidate, outcome)

    def _climb(self, candidate: Candidate, outcome: Outcome) -> None:
        """Out of VMEM under this limit: the same blocks under the next one become a candidate."""
        if isinstance(outcome, OutOfVmem) and not outcome.by_rule:
            higher = climb(candidate, self.subject.chip)
            if higher is not None and self.study.add(higher):
                self.space.candidates.append(higher)
                self.space.climbed += 1

    def _keep(self, config: Config, outcome: Outcome, seconds: float) -> None:
        if isinstance(outcome, OutOfVmem) and not outcome.limited_by:
            outcome = limit_named(self.space, config, outcome, self.subject.chip)
        trial = keep_trial(self.store, self.subject.key, self.trials, config, outcome, seconds)
        self.observer.trial_done(trial)

    def _default(self) -> Candidate | None:
        return self._candidate(self.space.default)

    def _candidate(self, config: Config) -> Candidate | None:
        """The candidate with this config; climbed ones come back with their limit."""
        for candidate in self.space.candidates:
            if candidate.config == config:
                return candidate
        return None


def winners_elsewhere(records: Sequence[Record], key: Key, space: Space) -> list[Config]:
    """The candidates with the blocks and the grid order that won for the same problem under other
    toolchains and on other chips, the newest records first."""
    blocks = [
        (one.config.axes, one.config.grid_order)
        for one in sorted(records, key=lambda record: record.created_at, reverse=True)
        if one.key.problem == key.problem and not one.is_default and one.key != key
    ]
    by_blocks = {(c.config.axes, c.config.grid_order): c.config for c in space.candidates[::-1]}
    found = dict.fromkeys(by_blocks[one] for one in blocks if one in by_blocks)
    return list(found)[:_MOST_ELSEWHERE]


def keep_trial(
    store: SearchStore,
    key: Key,
    trials: list[Trial],
    config: Config,
    outcome: Outcome,
    seconds: float,
) -> Trial:
    """The trial that counts, in the store and in ``trials``, which are those of the key that are
    known here. It is another one's where that one was first with the same config."""
    trial = Trial(
        number=max((t.number for t in trials), default=-1) + 1,
        config=config,
        outcome=outcome,
        seconds=seconds,
        created_at=datetime.now(UTC),
    )
    while not store.save_trial(key, trial):
        known = list(store.trials(key))
        theirs = next((t for t in known if t.config == config), None)
        if theirs is not None:  # another machine, or thread, on the same key was first
            trial = theirs
            break
        trial = replace(trial, number=max(t.number for t in known) + 1)
    trials.append(trial)
    return trial


def evaluate(compilers: CandidateCompiler, subject: Subject, config: Config) -> Outcome:
    """Compile one config and estimate its time."""
    return outcome_of(compile_config(compilers, subject, config).result(), subject.chip)


def compile_config(
    compilers: CandidateCompiler, subject: Subject, config: Config
) -> Future[Attempt]:
    return compilers.compile(subject.ref, subject.problem, config, subject.chip.chip)


def outcome_of(attempt: Attempt, chip: ChipInfo) -> Outcome:
    """Its time is estimated where it compiles; the rules are checked on its own trace again."""
    if not isinstance(attempt.answer, tuple):
        return attempt.answer
    trace, compiled = attempt.answer
    broken = rules.violation(trace, chip)
    return rules.illegal(broken) if broken else estimate(trace, compiled, chip)


def _time(outcome: Outcome) -> float | None:
    return outcome.estimate.time_us if isinstance(outcome, Estimated) else None


def _study_name(subject: Subject, space: Space) -> str:
    """One study for one key and one space: Optuna refuses other choices under the same name."""
    points = sorted({value for c in space.candidates for value in map(str, coordinates(c))})
    digest = hashlib.sha256("\n".join([str(subject.key), MODEL, *points]).encode()).hexdigest()[:16]
    return f"{subject.spec.name} {subject.problem} {subject.chip.chip} {digest}"
