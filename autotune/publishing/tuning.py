"""A whole search: describe, explore, try, verify, time where a TPU is attached, publish.

The commands, a notebook, a worker and what follows a check all begin here, with one task or many.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import inf
from threading import Event
from typing import TYPE_CHECKING

from autotune.declaring.fingerprint import ReadOnce
from autotune.domain.arguments import NODES_JAX, asked
from autotune.domain.compilers import Compilers, ListChoices
from autotune.domain.errors import AutotuneError, NoDatabaseError
from autotune.domain.evidence import Measurement, MeasurementCandidate, NotMeasured
from autotune.domain.key import Key
from autotune.domain.problem import Config
from autotune.domain.store import Store
from autotune.domain.workload import InvalidProblem
from autotune.estimating.space import Space
from autotune.publishing.estimated_ties import Measure
from autotune.publishing.progress import Reported, ended_search, searched_before
from autotune.publishing.publish import NewCompilers, OpenStore, Publication, publish, unpublished
from autotune.publishing.task import NotTuned, Plan, TuningObserver, TuningResult, TuningTask
from autotune.publishing.with_options import with_options
from autotune.searching.one_config import announce_other_sources, config_judge, tuned_elsewhere
from autotune.searching.option_axes import OptionAxes, option_axes
from autotune.searching.subject import (
    SearchLimits,
    SearchResult,
    Subject,
    describe_subject,
    explore_space,
)

if TYPE_CHECKING:
    from autotune.searching.loop import Search


class _WithdrawnError(Exception):
    """The observer lets nothing be published any more."""


def tune_all(
    new_compilers: NewCompilers,
    open_store: OpenStore,
    tasks: Sequence[TuningTask],
    plan: Plan,
    observer: TuningObserver,
) -> list[TuningResult | NotTuned]:
    """Tune all tasks side by side; equal problems are one, with the sum of their weights.

    A search that has ended before is its own answer, and no compilers are opened where all have.
    The others get their default and first candidates each; then trials go where they pay. What is
    over is verified and published while the rest goes on. Every finished trial is in the store
    before the next one starts: after Ctrl-C the same tasks go on. An ``AutotuneError`` of one task
    is part of its result, and the others go on. No database is made before a task can be searched.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        store, sources = _existing(stack, open_store), ReadOnce()
        answers = [
            None if store is None else searched_before(store, task, plan, sources) for task in tasks
        ]
        if all(answers):
            entries = _begun(list(filter(None, answers)), observer)
            return [entry for entry in entries if isinstance(entry, TuningResult)]
        observer.compiling()
        compilers = stack.enter_context(new_compilers())
        described = [
            answer or _described(compilers, store, task, plan, sources)
            for task, answer in zip(tasks, answers, strict=True)
        ]
        explored = [
            _explored(compilers, entry, observer) if isinstance(entry, _Described) else entry
            for entry in _begun(described, observer)
        ]
        to_search = [entry for entry in explored if isinstance(entry, _Explored)]
        if not to_search:
            return [entry for entry in explored if not isinstance(entry, _Explored)]
        store = store or stack.enter_context(open_store(create=True))
        run = _Run(compilers, store, plan, observer, sources, began)
        searched = iter(run.searched(list(map(run.opened, to_search))))
        return [next(searched) if isinstance(entry, _Explored) else entry for entry in explored]


def tune_one(
    new_compilers: NewCompilers,
    open_store: OpenStore,
    task: TuningTask,
    plan: Plan,
    observer: TuningObserver,
) -> TuningResult:
    """The same of one task, whose ``AutotuneError`` is raised."""
    (tuned,) = tune_all(new_compilers, open_store, [task], plan, observer)
    if tuned.error is not None:
        raise tuned.error
    assert isinstance(tuned, TuningResult)
    return tuned


@dataclass(slots=True, kw_only=True)
class _Described:
    """A task whose problem and kernel are known."""

    task: TuningTask
    subject: Subject

    @property
    def key(self) -> Key:
        return self.subject.key


@dataclass(slots=True, kw_only=True)
class _Explored(_Described):
    """With its space, and what it is to start from. ``reported``: once it is opened."""

    space: Space
    options: OptionAxes
    start_from: Sequence[Config]
    observer: TuningObserver
    reported: Reported = field(init=False)


def _existing(stack: ExitStack, open_store: OpenStore) -> Store | None:
    """None where it is yet to be made. What is wrong with it is said before anything is traced."""
    try:
        return stack.enter_context(open_store(create=False))
    except NoDatabaseError:
        return None


def _described(
    compilers: Compilers, store: Store | None, task: TuningTask, plan: Plan, sources: ReadOnce
) -> TuningResult | NotTuned | _Described:
    """What the compilers know of a task, or how its search ended before."""
    try:
        subject = describe_subject(compilers, task.ref, task.chip, task.problem, task.options)
        choices = compilers.ask(subject.question(ListChoices))
        spec, key = subject.spec, subject.key
        before = store and ended_search(store, task, spec, key, plan, sources, choices)
    except AutotuneError as error:
        return NotTuned(task=task, error=error)
    return before or _Described(task=task, subject=subject)


def _explored(
    compilers: Compilers, described: _Described, observer: TuningObserver
) -> NotTuned | _Explored:
    """With its space, and what is tried first."""
    task, subject = described.task, described.subject
    own_observer = observer.of(subject.key)
    try:
        space = explore_space(compilers, subject, own_observer.tracing, task.only)
        wanted, announce = task.tuned_options, own_observer.announce
        options = option_axes(compilers, subject, space, wanted, announce)
        return _Explored(
            task=task,
            subject=subject,
            space=space,
            options=options,
            start_from=_start_from(compilers, task, subject),
            observer=own_observer,
        )
    except AutotuneError as error:
        return _refused(NotTuned(task=task, error=error), observer)


def _start_from(compilers: Compilers, task: TuningTask, subject: Subject) -> list[Config]:
    if not task.start_from:
        return []
    judge = config_judge(compilers, subject)
    return [
        judge.read(config) if isinstance(config, str) else judge.complete(config)
        for config in task.start_from
    ]


@dataclass(frozen=True, slots=True)
class _Run:
    """The tasks of one call that are searched. ``began``: of ``time.monotonic``, before
    any compiler was opened: the time of a search and its limit count from there."""

    compilers: Compilers
    store: Store
    plan: Plan
    observer: TuningObserver
    sources: ReadOnce
    began: float

    def opened(self, explored: _Explored) -> _Explored:
        """With what is known of the problem elsewhere, which is tried first."""
        task, subject = explored.task, explored.subject
        python = self.plan.python or f"{NODES_JAX}{subject.toolchain.jax}"
        what = subject.ref.call or subject.problem
        command = asked(subject.ref, subject.spec.name, what, task.chip, python)
        command = "" if subject.ref.source else command  # of a notebook, which is no file
        reported = Reported(
            explored.observer,
            self.store.searches,
            subject.key,
            command,
            self.sources.searched_source(subject.ref),
            self.compilers.ask(subject.question(ListChoices)).digest,
        )
        known = tuned_elsewhere(self.compilers, self.store, subject, reported.announce)
        announce_other_sources(self.store, subject, reported.announce)
        explored.start_from = tuple(dict.fromkeys((*explored.start_from, *known)))
        explored.reported = reported
        return explored

    def searched(self, opened: Sequence[_Explored]) -> list[TuningResult]:
        """Once more, to the limit, where a prediction ended a search and the gate refuses what it
        has found: few others were tried."""
        tuned = self._round(opened, self.plan.limits)
        again = [place for place, task in enumerate(tuned) if _is_refused(task)]
        if again and all(task.publication for task in tuned):
            last = replace(self.plan.limits, full=True)
            repeated = self._round([opened[place] for place in again], last)
            for place, task in zip(again, repeated, strict=True):
                tuned[place] = task
        return tuned

    def _round(self, opened: Sequence[_Explored], limits: SearchLimits) -> list[TuningResult]:
        # Optuna: not for what was searched before.
        from autotune.searching.run import run_searches

        searches = [self._search(task, limits) for task in opened]
        with ExitStack() as stack:
            # Not waited for after Ctrl-C: closing the compilers ends what runs.
            threads = ThreadPoolExecutor(self.compilers.size, thread_name_prefix="publishing")
            stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            left = Event()
            stack.callback(left.set)  # nobody waits for a race that still runs
            pending: dict[int, Future[TuningResult]] = {}

            def publish_soon(search: "Search") -> None:
                place = next(n for n, other in enumerate(searches) if other is search)
                pending[place] = threads.submit(
                    self._published, opened[place], search.result(), left.is_set
                )

            timeout_s = self.plan.limits.timeout_s
            left_s = self.began + (inf if timeout_s is None else timeout_s) - time.monotonic()
            stop = self.observer.is_stopped
            run_searches(searches, self.compilers.size, left_s, stop, publish_soon)
            if any(search.stopped_by == "interrupted" for search in searches):
                pending = {place: future for place, future in pending.items() if future.done()}
            return [
                pending[place].result()
                if place in pending
                else self._ended(opened[place], search.result(), None)
                for place, search in enumerate(searches)
            ]

    def _search(self, opened: _Explored, limits: SearchLimits) -> "Search":
        from autotune.searching.loop import open_search

        return open_search(
            self.compilers,
            self.store,
            opened.subject,
            opened.space,
            limits_of(limits, self.plan, opened.subject),
            opened.reported,
            seed=self.plan.seed,
            method=self.plan.method,
            start_from=opened.start_from,
            before=opened.reported.before,
            weight=opened.task.weight,
            options=opened.options,
            began=self.began,
        )

    def _published(
        self, opened: _Explored, result: SearchResult, is_left: Callable[[], bool]
    ) -> TuningResult:
        try:
            asked = opened.options.result(result, ())
            tuned = self._ended(opened, result, self._publication(opened, asked, is_left))
            return with_options(
                self.compilers,
                self.store,
                opened.options,
                result,
                tuned,
                lambda part: self._publication(opened, part, is_left),
            )
        except _WithdrawnError:
            return self._ended(opened, result, None)
        except AutotuneError as error:
            return self._ended(opened, result, unpublished(result, str(error)), error)

    def _publication(
        self, opened: _Explored, result: SearchResult, is_left: Callable[[], bool]
    ) -> Publication:
        # The measuring process: not for what was searched before.
        from autotune.publishing.timing import new_measure

        def may_publish() -> bool:
            return not is_left() and opened.observer.may_publish()

        def stop() -> bool:
            return is_left() or opened.observer.is_stopped()

        if not may_publish():
            raise _WithdrawnError
        announce = opened.reported.announce
        measure = new_measure(self.compilers, result.subject, self.plan, announce, stop)
        return publish(
            self.compilers,
            self.store,
            result,
            allow_unverified=self.plan.allow_unverified,
            announce=announce,
            measure=measure and _while_allowed(measure, may_publish),
        )

    def _ended(
        self,
        opened: _Explored,
        result: SearchResult,
        publication: Publication | None,
        error: AutotuneError | None = None,
    ) -> TuningResult:
        result = opened.options.result(result, ())
        tuned = TuningResult(
            task=opened.task,
            spec=opened.subject.spec,
            key=opened.subject.key,
            trials=result.trials,
            stopped_by=result.stopped_by,
            publication=publication,
            ids=self.store.trial_ids(opened.subject.key),
            place=str(self.store),
            search=result,
            error=error,
        )
        if publication is None:
            opened.reported.end()
        elif not _is_refused(tuned):
            opened.observer.tuned(tuned)
            is_part = opened.task.only or opened.options.names
            opened.reported.end("" if is_part else result.stopped_by)
        return tuned


def limits_of(limits: SearchLimits, plan: Plan, subject: Subject) -> SearchLimits:
    """An estimate predicts no measurement: what is timed is searched to its limit."""
    return replace(limits, full=limits.full or plan.times(subject.chip.chip))


def _begun(
    entries: "Sequence[TuningResult | NotTuned | _Described]", observer: TuningObserver
) -> "list[TuningResult | NotTuned | _Described]":
    """Each problem once, what cannot be tuned at the end; the observer hears of those that are over
    already."""
    known: dict[Key, TuningResult | _Described] = {}
    refused: dict[InvalidProblem, NotTuned] = {}
    for entry in entries:
        if isinstance(entry, NotTuned):
            refused.setdefault(entry.problem, entry)  # on all chips for the same reason
            continue
        first = known.get(entry.key)
        if first is None:
            known[entry.key] = entry
            continue
        weight = first.task.weight + entry.task.weight
        known[entry.key] = replace(first, task=replace(first.task, weight=weight))
    observer.begin(len(known))
    for key, entry in known.items():
        if isinstance(entry, TuningResult):
            observer.of(key).tuned(entry)
    return [*known.values(), *(_refused(entry, observer) for entry in refused.values())]


def _refused(refused: NotTuned, observer: TuningObserver) -> NotTuned:
    observer.not_tuned(refused)
    return refused


def _is_refused(tuned: TuningResult) -> bool:
    """Whether the gate refuses what a prediction took for the fastest."""
    publication = tuned.publication
    is_predicted = tuned.search is not None and tuned.stopped_by == "prediction"
    return is_predicted and bool(publication and (publication.wrong or publication.unverified))


def _while_allowed(measure: Measure, may_publish: Callable[[], bool]) -> Measure:
    """The same; raises ``_WithdrawnError`` where nothing may be published when it is done."""

    def measured(
        candidates: Sequence[MeasurementCandidate], default: Config | None
    ) -> Measurement | NotMeasured:
        measurement = measure(candidates, default)
        if not may_publish():
            raise _WithdrawnError
        return measurement

    return measured
