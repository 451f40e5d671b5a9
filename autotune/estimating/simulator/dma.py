"""Events to time: when each DMA ends and how long each wait lasts.

Two readings of a walk (docs/explanation/simulator.md: DMAs), ``done = x + L`` in both.
Independent, as libtpu's estimate: ``x = max(issue, x of the DMA before it on its semaphore) +
bytes / B``. Shared, for real time: one first-in first-out channel for reads and writes,
``x = max(issue, busy) + bytes / B_hbm``, in which a
written byte counts for more than one. A wait ends when enough bytes arrived on its semaphore.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from autotune.domain.explanation import HBM, ISSUE, LANES, LATENCY, MATRIX, SCALAR, TimePart
from autotune.estimating.simulator.constants import ChipConstants
from autotune.estimating.simulator.lowering import (
    HBM_READ,
    HBM_WRITE,
    SIGNALLED,
    STEP,
    WAITED,
    CoreWork,
    Event,
)
from autotune.estimating.simulator.outcome import UnfitError

_MOST_BYTES = 1 << 40  # no DMA is larger: a size above it was misread
_BOTH_CORES = 0x6000 << 16  # marks the semaphore of a copy that goes to both cores of a chip
_INDEX = 0xF << 16  # where such a one has the index of the other core's
LARGEST_BURST_BYTES = 64 << 20  # what VMEM holds: more cannot have been saved up for

# kind, then cycles: issued, begun to move, moved, arrived; and bytes. For a wait: WAITED, its begin
# twice, when nothing but latency was left to wait for, its end, and the number of its operation.
Watch = Callable[[int, float, float, float, float, float], None]


class RunningTotals(NamedTuple):
    """Running totals when the outer loop header is passed, and at the end. Cycles unless said."""

    cycles: float
    waited: float
    latency_waited: float  # of it, while the last DMA that was waited for had moved its bytes
    reads: float  # DMAs
    writes: float  # DMAs to HBM
    read_bytes: float
    written_bytes: float
    bursts: float  # contiguous pieces of HBM touched
    bundles: float
    scalar: float  # bundles without a vector operation
    mxu: float
    lane_stalls: float
    walked: float  # bundles and stalls, without waits

    def parts(self) -> dict[TimePart, float]:
        """Cycles so far by what they were spent on; the pipeline fill is not told apart here."""
        return {
            ISSUE: self.bundles - self.scalar,
            SCALAR: self.scalar,
            MATRIX: self.walked - self.bundles - self.lane_stalls,
            LANES: self.lane_stalls,
            HBM: self.waited - self.latency_waited,
            LATENCY: self.latency_waited,
        }


class Fill(NamedTuple):
    """The waits before the loop and in the first step that has to wait, cycles."""

    waited: float
    latency_waited: float


class Timeline(NamedTuple):
    """The whole run: totals at each step and at the end, and the pipeline fill."""

    points: tuple[RunningTotals, ...]
    end: RunningTotals
    fill: Fill


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """How DMAs move: bandwidth in bytes per cycle, latencies in cycles.

    ``saved_share``: of the bytes of a burst that goes faster than the core's share, how many its
    own idle channel must have saved before; 0 where a core has the channel to itself.
    ``write_cost``: bytes read in the time in which one is written.
    """

    bytes_per_cycle: float
    burst_bytes_per_cycle: float
    saved_share: float
    write_cost: float
    read_latency: float
    write_latency: float
    shared: bool
    granule_bytes: int


def independent(chip: ChipConstants) -> Channel:
    """Return the reading of libtpu's own estimate."""
    return replace(
        shared(chip),
        bytes_per_cycle=chip.dma_bytes_per_cycle,
        burst_bytes_per_cycle=chip.dma_bytes_per_cycle,
        saved_share=0.0,
        write_cost=1.0,
        read_latency=chip.read_latency_cycles,
        shared=False,
    )


def shared(chip: ChipConstants) -> Channel:
    """Return the reading for real time. Two cores share a channel as a token bucket: what a core
    leaves unused is the other's, and it may use as much more later."""
    return Channel(
        bytes_per_cycle=chip.hbm_bytes_per_cycle,
        burst_bytes_per_cycle=chip.burst_bytes_per_cycle,
        saved_share=1 - chip.hbm_bytes_per_cycle / chip.burst_bytes_per_cycle,
        write_cost=chip.write_cost,
        read_latency=chip.real_read_latency_cycles,
        write_latency=chip.write_latency_cycles,
        shared=True,
        granule_bytes=chip.granule_bytes,
    )


def replay(
    events: Iterable[Event], channel: Channel, final: Event, watch: Watch | None = None
) -> Timeline:
    """Return the time line of the events; UnfitError where a wait can never end.

    ``watch`` is told of every DMA and every wait, for a picture of the run.
    """
    engine, points = _Engine(channel, watch), []
    for clock, amount, which, kind, more in events:
        if kind == STEP:
            points.append(engine.point(clock, CoreWork(*more)))
        elif kind == WAITED:
            engine.wait(clock, amount, which, *more)
        elif kind == SIGNALLED:
            engine.signal(clock, amount, which)
        else:
            engine.start(clock, amount, which, kind, more[0] if more else 0.0)
    end = engine.point(final[0], CoreWork(*final[4]))
    return Timeline(tuple(points), end, _fill([*points, end]))


def _fill(points: list[RunningTotals]) -> Fill:
    """Return the waits before the loop and in the first step that has to wait."""
    first = next((p for p in points[1:] if p.waited > points[0].waited), points[0])
    return Fill(first.waited, first.latency_waited)


def _own_core(semaphore: float) -> float:
    """XLA's copies to both cores (v5p) name two semaphores in one: ``(0x6000 | s) << 16 | s``."""
    number = int(semaphore)
    is_both = number > 0 and number & _BOTH_CORES == _BOTH_CORES
    return number & ~(_BOTH_CORES | _INDEX) if is_both else semaphore


class _Engine:
    """The DMA engine of one core: semaphores, channel, and totals so far."""

    def __init__(self, channel: Channel, watch: Watch | None) -> None:
        self._channel, self._watch = channel, watch
        self._busy = self._saved = 0.0
        self._moved: dict[float, float] = {}  # semaphore -> when its last DMA had moved
        self._arrivals: dict[float, list[tuple[float, float, float]]] = {}  # (at, moved, bytes)
        self._reads = self._writes = 0
        self._read = self._written = self._bursts = 0.0
        self.waited = self._latency_waited = 0.0

    def start(self, clock: float, amount: float, semaphore: float, kind: int, burst: float) -> None:
        """Issue a DMA of ``amount`` granules; ``clock`` does not know the waits so far."""
        size, semaphore = amount * self._channel.granule_bytes, _own_core(semaphore)
        if not 0 <= size < _MOST_BYTES:
            raise UnfitError(f"a DMA of {size:.0f} bytes")
        self._writes += bool(kind & HBM_WRITE)
        self._reads += not kind & HBM_WRITE
        self._read += size if kind & HBM_READ else 0
        self._written += size if kind & HBM_WRITE else 0
        ways = bool(kind & HBM_READ) + bool(kind & HBM_WRITE)  # a copy within HBM moves twice
        self._bursts += ways * (max(1.0, size / burst) if burst else 1)
        issued = clock + self.waited
        weight = bool(kind & HBM_READ) + bool(kind & HBM_WRITE) * self._channel.write_cost
        begun, moved = self._move(issued, size * (weight or 1), kind, semaphore)
        latency = self._channel.write_latency if kind & HBM_WRITE else self._channel.read_latency
        latency = latency if ways < 2 else max(latency, self._channel.read_latency)
        arrival = (moved + latency, moved, size)
        insort(self._arrivals.setdefault(semaphore, []), arrival)
        if self._watch:
            self._watch(kind, issued, begun, moved, moved + latency, size)

    def signal(self, clock: float, amount: float, semaphore: float) -> None:
        """Raise a semaphore at once."""
        size, now = amount * self._channel.granule_bytes, clock + self.waited
        if size > 0:
            insort(self._arrivals.setdefault(semaphore, []), (now, now, size))

    def _move(self, issued: float, size: float, kind: int, semaphore: float) -> tuple[float, float]:
        """When the bytes begin and end to move. A copy within the chip has no queue."""
        channel, begun = self._channel, issued
        if not channel.shared:
            begun = max(begun, self._moved.get(semaphore, 0.0))
        elif kind:
            begun = max(begun, self._busy)
            saved = self._saved + (begun - self._busy) * channel.bytes_per_cycle
            self._saved = min(saved, channel.saved_share * LARGEST_BURST_BYTES)
        moved = begun + self._cycles(size, kind)
        if not channel.shared:
            self._moved[semaphore] = moved
        elif kind:
            self._busy = moved
        return begun, moved

    def _cycles(self, size: float, kind: int) -> float:
        """How long the bytes move: fast as far as the channel has saved."""
        channel = self._channel
        if not (kind and channel.saved_share):
            return size / channel.bytes_per_cycle
        fast = min(size, self._saved / channel.saved_share)
        self._saved -= fast * channel.saved_share
        return fast / channel.burst_bytes_per_cycle + (size - fast) / channel.bytes_per_cycle

    def wait(self, clock: float, amount: float, semaphore: float, operation: float = 0.0) -> None:
        """Wait until ``amount`` granules arrived, and take them off the semaphore."""
        missing, until, moved = amount * self._channel.granule_bytes, 0.0, 0.0
        arrivals = self._arrivals.get(semaphore, [])
        while missing > 0:
            if not arrivals:
                raise UnfitError("a DMA wait that nothing in the listing satisfies")
            until, moved, size = arrivals.pop(0)
            if size > missing:
                arrivals.insert(0, (until, moved, size - missing))
            missing -= size
        now = clock + self.waited
        if until > now:
            self.waited += until - now
            self._latency_waited += until - max(now, moved)
            if self._watch:
                self._watch(WAITED, now, now, max(now, moved), until, operation)

    def point(self, clock: float, work: CoreWork) -> RunningTotals:
        """Return the totals now."""
        return RunningTotals(
            cycles=clock + self.waited,
            waited=self.waited,
            latency_waited=self._latency_waited,
            reads=self._reads,
            writes=self._writes,
            read_bytes=self._read,
            written_bytes=self._written,
            bursts=self._bursts,
            bundles=work.bundles,
            scalar=work.scalar,
            mxu=work.mxu,
            lane_stalls=work.lane_stalls,
            walked=clock,
        )
