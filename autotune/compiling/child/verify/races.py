"""JAX's race detection, with its rule and less work: JAX compares each access with each one before
it in Python, which was a third of what a loop over rows took. And what nobody waits for."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import wraps
from itertools import count
from threading import Lock
from typing import Any

import numpy as np

from autotune.compiling.child.chips import patched

_FIRST = 4  # dimensions, of pages and rows, that are compared for many accesses at once


@contextmanager
def watched(unread: Sequence[int]) -> Iterator[list[str]]:
    """The first race in any of the calls: JAX itself remembers whether the last has one. Without
    DMAs that move nothing, which up to jax 0.12 race with all others, and without two writes of
    ``unread`` arrays in HBM, which are numbered as they are allocated: the inputs, then the outputs
    that share no memory with an input."""
    from jax._src.pallas.mosaic.interpret.race_detection_state import RaceDetectionState
    from jax._src.pallas.mosaic.interpret.shared_memory import SharedMemory

    ids = _buffer_ids(unread) if unread else frozenset()
    raced: list[str] = []
    dmas = count()

    def thread_of_dma(memory: Any) -> int:
        """In turn, not at random: a race is found, or missed, each time."""
        cores = int(memory.num_cores)
        return cores + next(dmas) % (int(memory.vector_clock_size) - cores)

    checks = {
        name: _check(getattr(RaceDetectionState, name), ids, raced)
        for name in ("check_read", "check_write")
    }
    with (
        patched(RaceDetectionState, **checks),
        patched(SharedMemory, get_random_virtual_device_id=thread_of_dma),
    ):
        yield raced


@contextmanager
def drained() -> Iterator[list[str]]:
    """What each call leaves signalled on a device when all have ended, which JAX only prints: who
    takes that semaphore next does not wait."""
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call as calls

    left: list[str] = []
    clear = calls._clear_shared_memory

    def cleared() -> None:
        memory = calls._get_shared_memory()
        for number, semaphore in (memory.sem | memory.fixed_id_sem).items():
            counts = semaphore.count_by_core.reshape(-1, memory.num_cores_per_device).max(1)
            name = f"semaphore {number - min(memory.sem, default=0)} of those that it allocates"
            name = name if number in memory.sem else "the barrier semaphore"
            left.extend(f"{name} is {n} on device {at}" for at, n in enumerate(counts) if n)
        clear()

    with patched(calls, _clear_shared_memory=cleared):
        yield left


def _buffer_ids(buffers: Sequence[int]) -> frozenset[int]:
    from jax._src.pallas.mosaic.interpret.shared_memory import SharedMemory

    counters: Any = {f.name: f for f in fields(SharedMemory)}["next_buffer_id"].default_factory
    first = counters()[None]
    return frozenset(first + number for number in buffers)


@dataclass(slots=True)
class _Accesses:
    """Of each a column, its vector clock and where it begins and ends along the first dimensions,
    and its place in the buffer."""

    columns: Any = None
    places: list[Any] = field(default_factory=list)

    def add(self, clock: Any, place: Any) -> None:
        column, count = np.concatenate([clock, *_ends(place)]), len(self.places)
        if self.columns is None:
            self.columns = np.zeros((len(column), 64), np.int64)
        elif count == self.columns.shape[1]:
            self.columns = np.concatenate([self.columns, np.zeros_like(self.columns)], axis=1)
        self.columns[:, count] = column
        self.places.append(place)

    def unordered(self, clock: Any, place: Any) -> list[Any]:
        """The places, along the first dimensions in this one, of those that come neither before
        nor after."""
        if not self.places:
            return []
        columns, (start, stop) = self.columns[:, : len(self.places)], _ends(place)
        starts, stops = columns[len(clock) :].reshape(2, _FIRST, -1)
        near = np.flatnonzero(((starts < stop[:, None]) & (start[:, None] < stops)).all(0))
        known, now = columns[: len(clock), near], clock[:, None]
        is_before, is_after = (known <= now).all(0), (known >= now).all(0)
        return [self.places[number] for number in near[is_before == is_after]]


@dataclass(slots=True)
class _History:
    """Of the buffers of one simulated memory."""

    reads: dict[Any, _Accesses] = field(default_factory=lambda: defaultdict(_Accesses))
    writes: dict[Any, _Accesses] = field(default_factory=lambda: defaultdict(_Accesses))
    lock: Any = field(default_factory=Lock)


def _check(
    check: Callable[..., None], ids: frozenset[int], raced: list[str]
) -> Callable[..., None]:
    from jax._src.pallas.mosaic.interpret.race_detection_state import _ranges_overlap

    signature, is_write = inspect.signature(check), check.__name__ == "check_write"

    @wraps(check)
    def checked(state: Any, *args: Any, **more: Any) -> None:
        given = signature.bind(state, *args, **more).arguments
        buffer, place = given["buffer_key"], given["rnge"]
        is_unread = str(buffer[0]).lower() in ("hbm", "any") and int(buffer[1]) in ids
        if any(map(_is_empty, place)):
            return
        clock = getattr(given["clock"], "clock", given["clock"])
        history = vars(state).setdefault("autotune_history", _History())
        with history.lock:
            reads, writes = history.reads[buffer], history.writes[buffer]
            before = (writes, reads)[is_write and is_unread : 1 + is_write]
            others = [other for each in before for other in each.unordered(clock, place)]
            (writes if is_write else reads).add(clock, place)
        if not raced and any(_ranges_overlap(place, other) for other in others):
            kind = "write" if is_write else "read"
            parts = [f"{p.start or 0}:{p.stop}" if isinstance(p, slice) else str(p) for p in place]
            where = f"[{', '.join(parts)}] in {buffer[0]}"
            raced.append(f"a {kind} of {where} is not ordered with another access")

    return checked


def _ends(place: Sequence[Any]) -> Any:
    """Where it begins and ends along each of the first dimensions."""
    ends = np.zeros((2, _FIRST), np.int64)
    ends[1] = np.iinfo(np.int64).max
    for number, part in enumerate(place[:_FIRST]):
        if not isinstance(part, slice):
            ends[:, number] = part, part + 1
        elif part.stop is not None:
            ends[:, number] = part.start or 0, part.stop
    return ends


def _is_empty(part: Any) -> bool:
    return isinstance(part, slice) and part.stop is not None and part.stop <= (part.start or 0)
