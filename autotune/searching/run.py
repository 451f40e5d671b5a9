"""Searches until a limit is reached: one alone, or several side by side, where trials pay."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager, suppress
from math import inf

from threadpoolctl import threadpool_limits

from autotune.domain.errors import StoreError
from autotune.searching.loop import Search

_FIRST_TRIALS = 4  # of each search, before any has more


def run_searches(
    searches: Sequence[Search],
    size: int,
    timeout_s: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    finished: Callable[[Search], None] = lambda _: None,
) -> None:
    """Advance all searches until each is over, ``size`` trials at a time. Without a limit of time
    those of a kernel follow one another: each knows what those before it have taught. With
    ``timeout_s`` trials go where they pay: each gets its first ones before any gets more, then the
    one that promises most for its weight; afterwards only defaults that are not known are still
    tried. ``finished`` is told of each that is over, at once. Ctrl-C or ``stop`` interrupts all:
    what is finished is kept. NumPy has one thread meanwhile: several that wait for each other on
    busy cores spin."""
    deadline = inf if timeout_s is None else time.monotonic() + timeout_s
    with threadpool_limits(1, user_api="blas"), _kept_from_collection(), _interrupting(searches):
        while not stop():
            _fill(searches, size, deadline, finished)
            running = [future for search in searches for future in search.running]
            if all(search.stopped_by for search in searches):
                return
            done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for search in searches:
                search.collect(done)
        _interrupted(searches)


@contextmanager
def _kept_from_collection() -> Iterator[None]:
    """What is there already, the candidates with their traces above all, is garbage at no time of a
    search: to look at all of it takes 50 ms."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _interrupting(searches: Sequence[Search]) -> Iterator[None]:
    """Whatever ends it early: what is finished is kept. After Ctrl-C that is all."""
    try:
        yield
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):
            _interrupted(searches)
    except BaseException:
        with suppress(StoreError):  # it may be the store that is lost
            _interrupted(searches)
        raise


def _fill(
    searches: Sequence[Search], size: int, deadline: float, finished: Callable[[Search], None]
) -> None:
    """Keep every compiler busy."""
    while sum(len(search.running) for search in searches) < size:
        ready = [search for search in searches if search.is_ready]
        if not ready:
            return
        if deadline == inf:
            search = _next_taught(searches, ready)
        else:
            fewest = min(min(search.begun, _FIRST_TRIALS) for search in ready)
            first = [search for search in ready if min(search.begun, _FIRST_TRIALS) == fewest]
            search = first[0] if len(first) == 1 else max(first, key=Search.promise_us)
        begun = search.begun
        search.start(late=time.monotonic() > deadline)
        if search.stopped_by:
            finished(search)
        elif search.begun == begun and search.is_ready:
            return  # it has traced more: others may be done meanwhile


def _next_taught(searches: Sequence[Search], ready: Sequence[Search]) -> Search:
    """The one that has the fewest of its kernel still ahead of it."""
    kernels = Counter[str]()
    ahead = dict[int, int]()
    for search in searches:
        ahead[id(search)] = kernels[search.subject.spec.name]
        kernels[search.subject.spec.name] += not search.stopped_by
    return min(ready, key=lambda search: ahead[id(search)])


def _interrupted(searches: Sequence[Search]) -> None:
    open_ones = [search for search in searches if not search.stopped_by]
    for search in open_ones:
        search.stopped_by = "interrupted"
    for search in open_ones:
        search.keep_finished()
