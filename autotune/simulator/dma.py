"""Events to time: when each DMA ends and how long each wait lasts.

Two readings of the same walk (facts sect. 4.3). Independent, as libtpu's estimate:
``done = issue + bytes / B + L`` for every DMA alone. Shared, for real time: one first-in
first-out channel for reads and writes, ``x = max(issue, busy) + bytes / B_hbm``,
``done = x + L``. A wait ends when enough bytes arrived on its semaphore.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from autotune.simulator.constants import Chip
from autotune.simulator.lowering import HBM_READ, HBM_WRITE, SIGNALLED, STEP, WAITED, Event
from autotune.simulator.outcome import UnfitError

_MOST_BYTES = 1 << 40  # no DMA is larger: a size above it was misread


class Point(NamedTuple):
    """Running totals when the outer loop header is passed, and at the end."""

    cycles: float
    waited: float
    reads: float  # DMAs
    writes: float  # DMAs to HBM
    read_bytes: float
    written_bytes: float
    bundles: float
    walked: float  # bundles and stalls, without waits
    mxu: float


class Timeline(NamedTuple):
    """The whole run: totals at each step and at the end, and the waits of the pipeline fill."""

    points: tuple[Point, ...]
    end: Point
    fill_cycles: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """How DMAs move: bandwidth in bytes per cycle, latencies in cycles."""

    bytes_per_cycle: float
    read_latency: float
    write_latency: float
    shared: bool
    granule_bytes: int


def independent(chip: Chip) -> Channel:
    """Return the reading of libtpu's own estimate."""
    return Channel(
        bytes_per_cycle=chip.dma_bytes_per_cycle,
        read_latency=chip.read_latency_cycles,
        write_latency=chip.write_latency_cycles,
        shared=False,
        granule_bytes=chip.granule_bytes,
    )


def shared(chip: Chip) -> Channel:
    """Return the reading for real time."""
    return Channel(
        bytes_per_cycle=chip.hbm_bytes_per_cycle,
        read_latency=chip.real_read_latency_cycles,
        write_latency=chip.write_latency_cycles,
        shared=True,
        granule_bytes=chip.granule_bytes,
    )


def replay(events: Iterable[Event], channel: Channel, final: Event) -> Timeline:
    """Return the time line of the events; UnfitError where a wait can never end."""
    engine, points, waits = _Engine(channel), [], []
    for clock, amount, which, kind in events:
        if kind == STEP:
            points.append(engine.point(clock, amount, which))
            waits.append(engine.waited)
        elif kind == WAITED:
            engine.wait(clock, amount, which)
        elif kind == SIGNALLED:
            engine.signal(clock, amount, which)
        else:
            engine.start(clock, amount, which, kind)
    end = engine.point(*final[:3])
    return Timeline(tuple(points), end, _fill([*waits, engine.waited]))


def _fill(waits: list[float]) -> float:
    """Return the waits before the loop and in the first step that has to wait."""
    before = waits[0]
    return next((waited for waited in waits[1:] if waited > before), before)


class _Engine:
    """The DMA engine of one core: semaphores, channel, and totals so far."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._busy = 0.0
        self._arrivals: dict[float, list[tuple[float, float]]] = {}  # semaphore -> (at, bytes)
        self._reads = self._writes = 0
        self._read = self._written = 0.0
        self.waited = 0.0

    def start(self, clock: float, amount: float, semaphore: float, kind: int) -> None:
        """Issue a DMA of ``amount`` granules; ``clock`` does not know the waits so far."""
        size = amount * self._channel.granule_bytes
        if not 0 <= size < _MOST_BYTES:
            raise UnfitError(f"a DMA of {size:.0f} bytes")
        self._writes += bool(kind & HBM_WRITE)
        self._reads += not kind & HBM_WRITE
        self._read += size if kind & HBM_READ else 0
        self._written += size if kind & HBM_WRITE else 0
        insort(self._arrivals.setdefault(semaphore, []), (self._done(clock, size, kind), size))

    def signal(self, clock: float, amount: float, semaphore: float) -> None:
        """Raise a semaphore at once."""
        size = amount * self._channel.granule_bytes
        if size > 0:
            insort(self._arrivals.setdefault(semaphore, []), (clock + self.waited, size))

    def _done(self, clock: float, size: float, kind: int) -> float:
        """A write to HBM has the write latency, all other DMAs the read latency."""
        channel, moved = self._channel, clock + self.waited
        if channel.shared and kind:
            moved = max(moved, self._busy)
        moved += size / channel.bytes_per_cycle
        if channel.shared and kind:
            self._busy = moved
        return moved + (channel.write_latency if kind & HBM_WRITE else channel.read_latency)

    def wait(self, clock: float, amount: float, semaphore: float) -> None:
        """Wait until ``amount`` granules arrived, and take them off the semaphore."""
        missing, until = amount * self._channel.granule_bytes, 0.0
        arrivals = self._arrivals.get(semaphore, [])
        while missing > 0:
            if not arrivals:
                raise UnfitError("a DMA wait that nothing in the listing satisfies")
            until, size = arrivals.pop(0)
            if size > missing:
                arrivals.insert(0, (until, size - missing))
            missing -= size
        self.waited += max(0.0, until - clock - self.waited)

    def point(self, clock: float, bundles: float, mxu: float) -> Point:
        """Return the totals now."""
        return Point(
            cycles=clock + self.waited,
            waited=self.waited,
            reads=self._reads,
            writes=self._writes,
            read_bytes=self._read,
            written_bytes=self._written,
            bundles=bundles,
            walked=clock,
            mxu=mxu,
        )
