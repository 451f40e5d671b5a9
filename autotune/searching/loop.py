"""One search, a trial at a time: reuse, predict, ask, compile, keep, tell."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile
from math import exp, inf
from typing import NamedTuple

from autotune.domain.compilers import Attempt, Compilers
from autotune.domain.outcome import NotEstimated, Outcome, OutOfVmem, WrongResult, estimated_us
from autotune.domain.problem import Config
from autotune.domain.record import Evidence, Trial
from autotune.domain.store import Store
from autotune.estimating.simulator import MODEL
from autotune.estimating.space import (
    Axes,
    Candidate,
    Space,
    around,
    climb,
    limit_named,
    orders_and_semantics,
    some_untraced,
)
from autotune.estimating.vmem import limit_bytes, limit_rungs
from autotune.searching import one_config
from autotune.searching.option_axes import OptionAxes, no_options
from autotune.searching.predicted_default import is_enough, predicted
from autotune.searching.study import CandidateStudy
from autotune.searching.subject import SearchLimits, SearchObserver, SearchResult, Subject
from autotune.searching.surrogate import Posterior
from autotune.searching.transfer import MOST_TRIALS, CallForecast, Lessons, lessons_of

# trials: so long each is learned from at once, or as many as there are _WIDE compilers;
_OFTEN = 16
_SHARE = 2  # then so many together, or half as many as there are, or as many as there are compilers
_TRACED_S = 3.0  # at a time, between two trials: what is done meanwhile is not kept yet
_WIDE = 8  # compilers: with as many, what is tried first is not waited for


def open_search(
    compilers: Compilers,
    store: Store,
    subject: Subject,
    space: Space,
    limits: SearchLimits,
    observer: SearchObserver,
    *,
    seed: int = 0,
    method: str = "gp",
    start_from: Sequence[Config] = (),
    before: int = 0,
    weight: float = 1.0,
    options: OptionAxes | None = None,
    began: float | None = None,
) -> "Search":
    """A search that knows what earlier runs have found, and has started nothing yet. ``before``:
    how many of their trials do not count, as the choices were others. ``options``: of the compiler,
    that are tuned as well, with their candidates in the space. ``began``: of ``time.monotonic``,
    when the work for it began; None: now."""
    options = options or no_options(subject)
    store.save_kernel(subject.spec)
    store.place_default(subject.key, space.default)
    earlier = options.earlier(store)
    records = store.records(subject.spec.name)
    won = (record.config for record in records if record.key.problem == subject.key.problem)
    known = [*(trial.config for trial in earlier), *start_from, *won]
    options.widen(space, [options.split(config)[1].axes for config in known], inf)
    later = [space.default.replace(vmem_limit_bytes=n or None) for n in limit_rungs(subject.chip)]
    if space.untraced:
        later += [*orders_and_semantics(space), *space.untraced.values()]
    study = CandidateStudy(space.candidates, later, seed=seed, method=method)
    search = Search(
        compilers,
        store,
        subject,
        space,
        study,
        observer,
        list(earlier),
        options=options,
        goal=limits.trials + before,
        full=not limits.may_end_early(method),
        weight=weight,
        lessons=lessons_of(subject.key, subject.chip, space) if method == "gp" else None,
        began=time.monotonic() if began is None else began,
    )
    search.reuse()
    observer.space_ready(space, earlier, max(len(earlier), min(search.goal, search.reachable)))
    elsewhere = one_config.winners_elsewhere(records, subject.key, space)
    search.begin_with(start_from, elsewhere)
    return search


class _Running(NamedTuple):
    """``asked``: the study gave it out, and is told. ``candidate``: None for a config that is given
    and is none. ``forecast``: what other problems say of it."""

    config: Config
    candidate: Candidate | None
    asked: bool
    forecast: CallForecast | None = None


@dataclass(slots=True)
class Search:
    """A search that is advanced a trial at a time: ``start`` hands the next one to the compilers,
    ``collect`` keeps those that are done. The default comes first and alone, whatever becomes of
    it, then each config that is given; after those, or beside them where there are many compilers,
    as many at a time as are started. Where other problems have predicted well, the default comes
    last and alone, and only if what is faster by their word is not surely so.

    ``goal``: how many trials at most, earlier ones included, and all of them where it is ``full``.
    ``weight``: how often what is searched runs. ``lessons``: None where other problems say nothing.
    ``stopped_by``: empty while there is something to do.
    """

    compilers: Compilers
    store: Store
    subject: Subject
    space: Space
    study: CandidateStudy
    observer: SearchObserver
    trials: list[Trial]
    options: OptionAxes
    goal: int
    full: bool = False
    weight: float = 1.0
    lessons: Lessons | None = None
    began: float = field(default_factory=time.monotonic)
    stopped_by: str = ""
    running: dict[Future[Attempt], _Running] = field(default_factory=dict)
    _given: tuple[Config, ...] = ()
    _configs: set[Config] = field(default_factory=set)
    _first: Iterator[Config] = field(default_factory=lambda: iter(()))
    _blocked: bool = False
    _predicted: Posterior | None = None
    _predicted_at: tuple[float, int] = (-inf, 0)
    _reused: int = 0

    def begin_with(self, given: Sequence[Config], elsewhere: Sequence[Config]) -> None:
        """What is tried ahead of all else, one after another."""
        self._given, self._reused = tuple(given), len(self.trials)
        others = takewhile(lambda _: not self._predict(), elsewhere)
        options = self.options.first(self.trials)
        self._first = chain(self._default_first(), self._own_blocks(), given, options, others)

    @property
    def is_ready(self) -> bool:
        """Whether ``start`` may have something to do."""
        return not self.stopped_by and not self._blocked

    @property
    def begun(self) -> int:
        """Trials, those that run included."""
        return len(self.trials) + len(self.running)

    def promise_us(self) -> float:
        """By how much the next trial is expected to shorten the best time, times the weight; before
        there is one, less with each that gave none."""
        times = [t.estimate.time_us for t in self.trials if t.estimate]
        best_us = min(times, default=self.space.candidates[0].roofline.guess_us)
        share = self.study.promise() if times else 1 / (1 + len(self.trials))
        return self.weight * best_us * share

    def start(self, *, late: bool = False) -> None:
        """Hand the next trial to the compilers; ``late``: only the default, where it is not known.
        Where there is none, it waits for what runs, or is over; or some more points are traced."""
        reason = self._start(late)
        if not self.running:
            self.stopped_by = reason
        self._blocked = bool(reason)

    def _start(self, late: bool) -> str:
        """Why nothing was started, or an empty string."""
        first_runs = any(not run.asked for run in self.running.values())
        if first_runs and self.compilers.size < _WIDE:
            return "the first is not done"
        if not first_runs and (first := self._next_first(late)):
            return self._run(_Running(first, self._candidate(first), asked=False))
        near = self._near_fastest()
        if near and not late and self.begun < self.goal:
            self._widen(near)
        if over := self._over(late, near):
            # What runs may yet speak against the prediction.
            if self.running or not self._lacks_default or self._predicted_default():
                return over
            default = self.space.default
            return self._run(_Running(default, self._candidate(default), asked=False))
        if self.lessons is not None and not self.lessons.are_sure:
            # what others teach of another body may mislead: every other trial does without
            self.study.predict(self._predicted if self.begun % 2 else None)
        candidate = self.study.ask()
        if candidate is None and self.space.untraced:
            self._widen(some_untraced(self.space))
            return ""
        if candidate is None:
            return "exhausted"
        return self._run(_Running(candidate.config, candidate, asked=True))

    def _near_fastest(self) -> list[Axes]:
        """The untraced points beside it, or beside the default: they may be faster."""
        if not self.space.untraced:
            return []
        timed = [(t.estimate.time_us, t.config) for t in self.trials if t.estimate]
        _, fastest = min(timed, key=lambda pair: pair[0], default=(inf, self.space.default))
        return around(self.space, self.options.split(fastest)[1])

    def _widen(self, points: Sequence[Axes]) -> None:
        """Trace some of these, where not all was traced, for as long as others can wait."""
        for candidate in self.options.widen(self.space, points, _TRACED_S):
            if not self.study.add(candidate):
                self.space.candidates.remove(candidate)

    def _next_first(self, late: bool) -> Config | None:
        """The next of those that are tried before the study is asked. None: all were, or one runs
        that the next may depend on. A default with a verdict need not be compiled."""
        if late and self.trials:
            return None
        # What all is compared with is tried in any case.
        is_full = self.trials and len(self.trials) >= self.goal
        for config in iter(self._given[:1]) if is_full else self._first:
            if self._tried(config):
                continue
            if self._runs(config):
                return None
            if config != self.space.default or self.space.default_verdict is None:
                return config
            self._keep([(config, self.space.default_verdict, 0.0)])
        return None

    def _over(self, late: bool, near: Sequence[Axes]) -> str:
        """Why no further candidate is tried, or an empty string."""
        if self.begun + self._lacks_default >= self.goal:
            return "trials"
        if late:
            return "timeout"
        is_traced = not any(axes in self.space.untraced for axes in near)
        return "prediction" * (self._predict() and is_traced and self._is_settled())

    def _run(self, run: _Running) -> str:
        run = run._replace(forecast=self.lessons.forecast(run.config) if self.lessons else None)
        if run.candidate and not run.asked:
            self.study.hold(run.candidate)
        self.running[one_config.compile_config(self.compilers, *self.options.split(run.config))] = (
            run
        )
        return ""

    def collect(self, done: Collection[Future[Attempt]]) -> None:
        """Keep those of ``done`` that are its own."""
        judged = list[tuple[Config, Outcome, float]]()
        finished = {future: run for future, run in self.running.items() if future in done}
        for future, run in finished.items():
            outcome, seconds = self._judged(future, run)
            if self.lessons and run.candidate:
                outcome = self.lessons.confirmed(run.candidate, run.forecast, outcome)
            judged.append((run.config, outcome, seconds))
        self._keep(judged)
        for (future, run), (_, outcome, _) in zip(finished.items(), judged, strict=True):
            del self.running[future]
            self._blocked = False
            if run.candidate is not None:
                inform = self.study.tell if run.asked else self.study.learn
                self._inform(inform, run.candidate, outcome)

    def result(self) -> SearchResult:
        return SearchResult(
            subject=self.subject,
            space=self.space,
            trials=self.trials,
            reused=self._reused,
            stopped_by=self.stopped_by,
            seconds=time.monotonic() - self.began,
            start_from=self._given,
            default=self._predicted_default() if self._lacks_default else None,
        )

    @property
    def reachable(self) -> int:
        """Trials that this space can still give, those done included."""
        known = len(self.space.candidates) + len(self.space.untraced)
        return max(known + (self._default() is None), len(self.trials))

    def reuse(self) -> None:
        """Take in earlier trials of the key. Those of an older model are estimated again."""
        for place, trial in enumerate(self.trials):
            if trial.estimate is not None and trial.estimate.model != MODEL:
                subject, config = self.options.split(trial.config)
                outcome = one_config.evaluate(self.compilers, subject, config)
                self.store.replace_outcome(subject.key, config, outcome)
                self.trials[place] = replace(trial, outcome=outcome)
        for trial in self.trials:
            candidate = self._candidate(trial.config)
            if candidate is not None:
                self._inform(self.study.learn, candidate, trial.outcome)

    def keep_finished(self) -> None:
        """Candidates that were done when the search was stopped are trials like all others."""
        for future, run in self.running.items():
            finished = future.done() and not future.cancelled() and future.exception() is None
            if finished and not self._tried(run.config):
                self._keep([(run.config, *self._judged(future, run))])

    def _predict(self, *, anew: bool = False) -> bool:
        """Have the study know what other problems of the kernel say, ``anew`` of all trials so far;
        False where they say nothing."""
        if self.lessons is None:
            return False
        then, candidates = self._predicted_at
        done, count = len(self.trials), len(self.space.candidates)
        size = self.compilers.size
        often = max(1, size // _WIDE) if done <= _OFTEN else max(_OFTEN, then // _SHARE, size)
        if done - then >= (1 if anew else often) or count != candidates:
            others = self.store.timed_trials(self.subject.key, MOST_TRIALS)
            trials = [(self.subject.key, trial) for trial in self.trials[-MOST_TRIALS:]]
            self._predicted = self.lessons.predict(self.space.candidates, others, trials)
            self.study.predict(self._predicted)
            self._predicted_at = done, count
        return self._predicted is not None

    def _is_settled(self) -> bool:
        """Whether a prediction may end it, and does when it knows all trials so far."""
        if self.full or self.lessons is None or not self.lessons.are_sure:
            return False
        study, lessons = self.study, self.lessons
        return (
            study.is_settled(lessons.worth)
            and self._predict(anew=True)
            and study.is_settled(lessons.worth)
        )

    @property
    def _lacks_default(self) -> bool:
        default = self.space.default
        return not (self._tried(default) or self._runs(default))

    def _default_first(self) -> Iterator[Config]:
        """The default, unless what others have taught may be enough."""
        if self.space.default_verdict or not self._predicted_default(hoped=True):
            yield self.space.default

    def _predicted_default(self, *, hoped: bool = False) -> Evidence | None:
        """What other problems say of the default, where that is enough; before there is a trial, it
        is ``hoped`` to be."""
        # Predicted in any case: what is compiled next is compared with it.
        if self.lessons is None or not self._predict(anew=True) or self.full:
            return None
        candidate = self._default() if self.trials or hoped else None
        if candidate is None or not self.lessons.are_sure or self._predicted is None:
            return None
        place = self.space.candidates.index(candidate)
        evidence = predicted(candidate.config, self._predicted, place, self.lessons.error)
        least_us = exp(self._predicted.mean.min())
        return evidence if is_enough(evidence, self.trials, least_us) else None

    def _runs(self, config: Config) -> bool:
        return any(run.config == config for run in self.running.values())

    def _tried(self, config: Config) -> bool:
        self._configs.update(trial.config for trial in self.trials[len(self._configs) :])
        return config in self._configs

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

    def _judged(self, future: Future[Attempt], run: _Running) -> tuple[Outcome, float]:
        """The outcome of a candidate and the wall clock that it took."""
        attempt = future.result()
        return one_config.outcome_of(attempt, self.options.chip(run.config)), attempt.seconds

    def _inform(self, study: Callable[..., None], candidate: Candidate, outcome: Outcome) -> None:
        compiles = isinstance(outcome, NotEstimated | WrongResult)
        study(candidate, estimated_us(outcome), outcome.kind, compiles=compiles)
        self._climb(candidate, outcome)

    def _climb(self, candidate: Candidate, outcome: Outcome) -> None:
        """Out of VMEM under this limit: the same blocks under the next one become a candidate."""
        if isinstance(outcome, OutOfVmem) and not outcome.by_rule:
            higher = climb(candidate, self.subject.chip)
            if higher is not None and self.study.add(higher):
                self.space.candidates.append(higher)
                self.space.climbed += 1

    def _keep(self, judged: Sequence[tuple[Config, Outcome, float]]) -> None:
        """At once: a commit for each takes the driver of a farm as long as a proposal."""
        named = [(config, self._named(config, outcome), s) for config, outcome, s in judged]
        for trial in self.options.keep(self.store, self.trials, named, self.space.default):
            self.observer.trial_done(trial)

    def _named(self, config: Config, outcome: Outcome) -> Outcome:
        if isinstance(outcome, OutOfVmem) and not outcome.limited_by:
            return limit_named(self.space, config, outcome, self.options.chip(config))
        return outcome

    def _default(self) -> Candidate | None:
        return self._candidate(self.space.default)

    def _candidate(self, config: Config) -> Candidate | None:
        """The candidate with this config; climbed ones come back with their limit."""
        return next((c for c in self.space.candidates if c.config == config), None)
