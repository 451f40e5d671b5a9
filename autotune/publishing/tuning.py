"""A whole search: try, verify, time where a TPU is attached, publish."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from autotune.domain.compilers import Compilers
from autotune.domain.config import Config
from autotune.domain.errors import AutotuneError
from autotune.domain.store import Store
from autotune.estimating.space import Space
from autotune.publishing.publish import Publication, publish, unpublished
from autotune.publishing.timing import Timing, is_timed, new_measure
from autotune.searching.limits import SearchLimits
from autotune.searching.loop import Observer, Search, open_search
from autotune.searching.result import SearchResult
from autotune.searching.run import run_search, run_together
from autotune.searching.subject import Subject
from autotune.searching.tuned_elsewhere import tuned_elsewhere

Done = tuple[SearchResult, Publication | None]
Task = TypeVar("Task")


class Watcher(Observer, Protocol):
    """Who watches all of it."""

    def announce(self, line: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to search. ``timing``: None for never. ``start_from``: tried right after the default."""

    limits: SearchLimits = field(default_factory=SearchLimits)
    seed: int = 0
    method: str = "gp"
    allow_unverified: bool = False
    timing: Timing | None = None
    start_from: tuple[Config, ...] = ()


def tune(
    compilers: Compilers,
    store: Store,
    subject: Subject,
    space: Space,
    plan: Plan,
    watcher: Watcher,
) -> Done:
    """It starts with what ``plan`` says, then with what others know of the problem. None: it was
    interrupted, and the same again resumes. Raises ``AutotuneError``."""
    known = tuned_elsewhere(compilers, store, subject, watcher.announce)
    start_from = tuple(dict.fromkeys((*plan.start_from, *known)))
    records = store.records(subject.spec.name)
    if all(record.key != subject.key for record in records):
        for record in records:
            if replace(record.key, fingerprint=subject.spec.fingerprint) == subject.key:
                watcher.announce(
                    f"the source changed: {record.config}, which won for the earlier source "
                    f"({record.key.fingerprint}), is tried again first"
                )
    return until_right(
        lambda limits: run_search(
            compilers,
            store,
            subject,
            space,
            limits,
            watcher,
            seed=plan.seed,
            method=plan.method,
            start_from=start_from,
        ),
        lambda result: _published(compilers, store, result, plan, watcher),
        limits_of(plan.limits, plan.timing, subject),
    )


def limits_of(limits: SearchLimits, timing: Timing | None, subject: Subject) -> SearchLimits:
    """An estimate predicts no measurement: what is timed is searched to its limit."""
    return replace(limits, full=limits.full or is_timed(timing, subject.chip.chip))


def until_right(
    search: Callable[[SearchLimits], SearchResult],
    published: Callable[[SearchResult], Publication],
    limits: SearchLimits,
) -> Done:
    """Search and publish, as often as ``_until_all_right`` does. None: it was interrupted."""

    def once(_: object, limits: SearchLimits) -> list[Done]:
        result = search(limits)
        return [(result, None if result.stopped_by == "interrupted" else published(result))]

    return _until_all_right([None], once, limits)[0]


def _until_all_right(
    tasks: Sequence[Task],
    one_round: Callable[[Sequence[Task], SearchLimits], list[Done]],
    limits: SearchLimits,
) -> list[Done]:
    """Once more, to the limit, where a prediction ended a search and the gate refuses what it
    found: few others were tried."""
    done = one_round(tasks, limits)
    again = [
        n
        for n, (result, publication) in enumerate(done)
        if publication and _is_refused(result, publication)
    ]
    if not again or not all(publication for _, publication in done):
        return done
    spent_s = max(result.seconds for result, _ in done)
    left_s = None if limits.timeout_s is None else max(0.0, limits.timeout_s - spent_s)
    last = replace(limits, full=True, timeout_s=left_s)
    for n, repeated in zip(again, one_round([tasks[n] for n in again], last), strict=True):
        done[n] = repeated
    return done


def _is_refused(result: SearchResult, publication: Publication) -> bool:
    return result.stopped_by == "prediction" and bool(publication.wrong or publication.unverified)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningTask:
    """One of several searches. ``weight``: how often what is searched runs; ``start_from``: tried
    right after the default."""

    subject: Subject
    space: Space
    watcher: Watcher
    weight: float = 1.0
    start_from: tuple[Config, ...] = ()


def tune_all(
    compilers: Compilers,
    store: Store,
    tasks: Sequence[TuningTask],
    plan: Plan,
    published: Callable[[SearchResult, Publication], None] = lambda _, __: None,
) -> list[Done]:
    """As ``tune``, all side by side: trials go where they pay, and what is over is verified and
    published while the others go on; ``published`` is told then. ``plan.limits.trials``: of each.
    What cannot be published is no record, with the reason."""
    tasks = [_with_known(compilers, store, task) for task in tasks]
    return _until_all_right(
        tasks,
        lambda parts, limits: _side_by_side(
            compilers, store, parts, replace(plan, limits=limits), published
        ),
        plan.limits,
    )


def _with_known(compilers: Compilers, store: Store, task: TuningTask) -> TuningTask:
    known = tuned_elsewhere(compilers, store, task.subject, task.watcher.announce)
    return replace(task, start_from=tuple(dict.fromkeys((*task.start_from, *known))))


def _side_by_side(
    compilers: Compilers,
    store: Store,
    tasks: Sequence[TuningTask],
    plan: Plan,
    published: Callable[[SearchResult, Publication], None],
) -> list[Done]:
    with ExitStack() as stack:
        searches = [_opened(compilers, store, task, plan) for task in tasks]
        # Not waited for after Ctrl-C: closing the compilers ends what runs.
        threads = ThreadPoolExecutor(compilers.size, thread_name_prefix="publishing")
        stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        pending: dict[int, Future[Publication]] = {}

        def publish_soon(search: Search) -> None:
            place = next(n for n, other in enumerate(searches) if other is search)
            pending[place] = threads.submit(publish_now, tasks[place], search.result())

        def publish_now(task: TuningTask, result: SearchResult) -> Publication:
            try:
                publication = _published(compilers, store, result, plan, task.watcher)
            except AutotuneError as error:  # the others go on, and the report says so
                publication = unpublished(result, str(error))
            if not _is_refused(result, publication):
                published(result, publication)
            return publication

        limits = plan.limits
        run_together(searches, compilers.size, limits.timeout_s, limits.stop, publish_soon)
        if any(search.stopped_by == "interrupted" for search in searches):
            done = {n: future for n, future in pending.items() if future.done()}
        else:
            done = pending
        return [
            (search.result(), done[n].result() if n in done else None)
            for n, search in enumerate(searches)
        ]


def _opened(compilers: Compilers, store: Store, task: TuningTask, plan: Plan) -> Search:
    return open_search(
        compilers,
        store,
        task.subject,
        task.space,
        limits_of(plan.limits, plan.timing, task.subject),
        task.watcher,
        seed=plan.seed,
        method=plan.method,
        start_from=task.start_from,
        weight=task.weight,
    )


def _published(
    compilers: Compilers, store: Store, result: SearchResult, plan: Plan, watcher: Watcher
) -> Publication:
    timing, subject = plan.timing, result.subject
    timer = new_measure(compilers, subject, timing, watcher.announce) if timing else None
    return publish(
        compilers,
        store,
        result,
        allow_unverified=plan.allow_unverified,
        announce=watcher.announce,
        measure=timer,
    )
