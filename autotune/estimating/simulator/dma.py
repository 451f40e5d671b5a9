"""Events to time: when each DMA ends and how long each wait lasts.

Two readings of a walk (docs/explanation/simulator.md: DMAs), ``done = x + L`` in both.
Independent, as libtpu's estimate: ``x = max(issue, x of the DMA before it on its semaphore) +
bytes / B``. Shared, for real time: one first-in first-out channel for reads and writes, or one for
each that have half of HBM while both move, ``x = max(issue, busy) + bytes / B_hbm``, in which a
written byte may count for more than one, and all do where reads and writes take turns. A wait ends
when enough bytes arrived on its semaphore.

Devices are equal, and run the same program at the same time: what one sends to its neighbour it
receives from the other. Each neighbour has a link of its own, and there are up to four; where a
program sends to more, they are a ring, and bytes go the shorter way around, over each hop.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from autotune.domain.explanation import HBM, ISSUE, LANES, LATENCY, LINKS, MATRIX, SCALAR, TimePart
from autotune.estimating.simulator.constants import ChipConstants
from autotune.estimating.simulator.lowering import (
    ANY_SEMAPHORE,
    AWAITED,
    HBM_READ,
    HBM_WRITE,
    LINK_WAITED,
    ON_CHIP,
    SIGNALLED,
    STEP,
    TOLD,
    WAITED,
    CoreWork,
    Event,
)
from autotune.estimating.simulator.outcome import UnfitError
from autotune.estimating.simulator.slicing import DEVICE, IS_REMOTE, OTHER_CORE

_MOST_BYTES = 1 << 40  # no DMA is larger: a size above it was misread
_BOTH_CORES = 0x6000 << 16  # marks the semaphore of a copy that goes to both cores of a chip
_INDEX = 0xF << 16  # where such a one has the index of the other core's
_MOST_NEIGHBOURS = 4
_SELF = 0  # the device whose program is walked
_MIXED_BYTES = 4 << 20  # a guess: what moved so many bytes ago counts by half
LARGEST_BURST_BYTES = 64 << 20  # what VMEM holds: more cannot have been saved up for

# kind, then cycles: issued, begun to move, moved, arrived; and bytes. For a wait: WAITED, or
# LINK_WAITED for other devices, its begin twice, when nothing but latency was left to wait for, its
# end, and the number of its operation.
Watch = Callable[[int, float, float, float, float, float], None]


class RunningTotals(NamedTuple):
    """Running totals when the outer loop header is passed, and at the end. Cycles unless said."""

    cycles: float
    waited: float  # for HBM
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
    linked: float  # waited for other devices
    linking: float  # how long the busiest link moves bytes

    def parts(self) -> dict[TimePart, float]:
        """Cycles so far by what they were spent on; the pipeline fill is not told apart here."""
        return {
            ISSUE: self.bundles - self.scalar,
            SCALAR: self.scalar,
            MATRIX: self.walked - self.bundles - self.lane_stalls,
            LANES: self.lane_stalls,
            HBM: self.waited - self.latency_waited,
            LATENCY: self.latency_waited,
            **({LINKS: self.linked} if self.linked else {}),
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


class Mix(NamedTuple):
    """Bytes that moved in HBM, numbers or arrays: by half for each ``_MIXED_BYTES`` since.
    ``write``: those of the last DMA that wrote."""

    moved: Any = 0.0
    written: Any = 0.0
    write: Any = 0.0

    def after(self, size: Any, written: Any) -> Mix:
        left = 2.0 ** (-size / _MIXED_BYTES)
        write = written + self.write * (written == 0)
        return Mix(self.moved * left + size, self.written * left + written, write)

    def turning(self) -> Any:
        """1 where half of it was written, 0 where all or nothing was."""
        share = self.written / (self.moved + (self.moved == 0))
        return 4 * share * (1 - share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """How DMAs move: bandwidth in bytes per cycle, latencies in cycles.

    ``saved_share``: of the bytes of a burst that goes faster than the core's share, how many its
    own idle channel must have saved before; 0 where a core has the channel to itself.
    ``write_cost``: bytes read in the time in which one is written; ``turn_cost``: more of them
    where as much is read as written, as HBM turns between the two; ``turn_latency``: as much later
    a read arrives there at most, no more than the write before it takes.
    """

    bytes_per_cycle: float
    burst_bytes_per_cycle: float
    saved_share: float
    write_cost: float
    turn_cost: float
    turn_latency: float
    read_latency: float
    write_latency: float
    chip_latency: float  # of a copy within the chip
    shared: bool
    apart: bool  # reads and writes have a queue each, and are served side by side
    granule_bytes: int
    link_bytes_per_cycle: float  # of one link, one way
    hop_cycles: float

    def turns(self, mix: Mix) -> Any:
        """How many times as long bytes take as HBM turns between reads and writes."""
        return 1 + self.turn_cost * mix.turning()

    def late(self, mix: Mix, least: Callable[[Any, Any], Any] = min) -> Any:
        """The latency of a read, which waits for HBM to write and turn."""
        waits = least(self.turn_latency, mix.write / self.bytes_per_cycle)
        return self.read_latency + waits * mix.turning()


def shared(chip: ChipConstants) -> Channel:
    """Return the reading for real time. Two cores share a channel as a token bucket: what a core
    leaves unused is the other's, and it may use as much more later."""
    return Channel(
        bytes_per_cycle=chip.hbm_bytes_per_cycle,
        burst_bytes_per_cycle=chip.burst_bytes_per_cycle,
        saved_share=1 - chip.hbm_bytes_per_cycle / chip.burst_bytes_per_cycle,
        write_cost=chip.write_cost,
        turn_cost=chip.turn_cost,
        turn_latency=chip.turn_latency_cycles,
        read_latency=chip.real_read_latency_cycles,
        write_latency=chip.real_write_latency_cycles,
        chip_latency=min(chip.read_latency_cycles, chip.real_read_latency_cycles),
        shared=True,
        apart=chip.is_side_by_side,
        granule_bytes=chip.granule_bytes,
        link_bytes_per_cycle=chip.link_bytes_per_cycle,
        hop_cycles=chip.hop_cycles,
    )


def replay(
    events: Sequence[Event], channel: Channel, final: Event, watch: Watch | None = None
) -> Timeline:
    """Return the time line of the events; UnfitError where a wait can never end.

    ``watch`` is told of every DMA, every wait and every STEP, for a picture of the run.
    """
    engine, points = _Engine(channel, watch, _neighbours(events)), []
    for clock, amount, which, kind, more in events:
        if kind == STEP:
            points.append(engine.point(clock, CoreWork(*more)))
            if watch:
                watch(STEP, clock, clock, clock, clock, 0.0)
        elif kind == WAITED:
            engine.wait(clock, amount, which, *more)
        elif kind == SIGNALLED:
            engine.signal(clock, amount, which)
        elif kind == TOLD:
            engine.tell(clock, which)
        elif kind == AWAITED:
            engine.hear(clock, which, *more)
        else:
            engine.start(clock, amount, which, kind, *more)
    end = engine.point(final[0], CoreWork(*final[4]))
    return Timeline(tuple(points), end, _fill([*points, end]))


def _fill(points: list[RunningTotals]) -> Fill:
    """Return the waits before the loop and in the first step that has to wait."""
    first = next((p for p in points[1:] if p.waited > points[0].waited), points[0])
    return Fill(first.waited, first.latency_waited)


def _neighbours(events: Sequence[Event]) -> Set[int]:
    """Devices that something is sent to."""
    overridden = (_device(more[2]) for *_, kind, more in events if kind >= 0 and len(more) > 1)
    return {device for device in overridden if device}


def _device(overrides: float) -> int | None:
    """That a DMA goes to: the number of its chip, and its core where cores are devices. Negative
    where data decide that. None: it stays here."""
    bits = int(overrides)
    if bits < 0:
        return bits
    return bits & (DEVICE | OTHER_CORE) if bits & IS_REMOTE else None


def _own_core(semaphore: float) -> float:
    """XLA's copies to both cores (v5p) name two semaphores in one: ``(0x6000 | s) << 16 | s``."""
    number = int(semaphore)
    is_both = number > 0 and number & _BOTH_CORES == _BOTH_CORES
    return number & ~(_BOTH_CORES | _INDEX) if is_both else semaphore


class _Arrival(NamedTuple):
    """Bytes on a semaphore; ``moved`` when nothing but latency was left."""

    at: float
    moved: float
    size: float
    is_remote: bool = False
    way: int = -1  # of the channel, none of what HBM does not move


class _Engine:
    """The DMA engine of one core: semaphores, channel, and totals so far."""

    def __init__(self, channel: Channel, watch: Watch | None, neighbours: Set[int]) -> None:
        self._channel, self._watch = channel, watch
        self._busy, self._saved = [0.0, 0.0], 0.0  # reads, or all; writes
        self._mix = Mix()
        self._moved: dict[float, float] = {}  # semaphore -> when its last DMA had moved
        self._arrivals: dict[float, list[_Arrival]] = {}
        self._ring = (
            max(device & DEVICE for device in neighbours) + 1
            if len(neighbours) > _MOST_NEIGHBOURS
            else 0
        )
        self._is_alone = not neighbours
        self._links: dict[int, tuple[float, float]] = {}  # free at, and how long it has moved bytes
        self._raised_at: dict[float, float] = {}  # semaphore -> when another device raises it last
        self._reads = self._writes = 0
        self._read = self._written = self._bursts = 0.0
        self.waited = self._latency_waited = self._linked = 0.0

    def start(
        self,
        clock: float,
        amount: float,
        semaphore: float,
        kind: int,
        burst: float = 0.0,
        sent: float = ANY_SEMAPHORE,
        overrides: float = 0,
    ) -> None:
        """Issue a DMA of ``amount`` granules; ``clock`` does not know the waits so far."""
        size, semaphore = amount * self._channel.granule_bytes, _own_core(semaphore)
        if not 0 <= size < _MOST_BYTES:
            raise UnfitError(f"a DMA of {size:.0f} bytes")
        read, written, channel = bool(kind & HBM_READ), bool(kind & HBM_WRITE), self._channel
        self._reads, self._writes = self._reads + (not written), self._writes + written
        self._read, self._written = self._read + size * read, self._written + size * written
        ways = read + written  # a copy within HBM moves twice
        self._bursts += ways * (max(1.0, size / burst) if burst else 1)
        issued = clock + self.waited
        self._mix = self._mix.after(size * ways, size * written)
        weight = (read + written * channel.write_cost) * channel.turns(self._mix)
        way = int(written and channel.apart) if kind else -1
        begun, moved = self._move(issued, size * (weight or 1), semaphore, way)
        device, hops = _device(overrides), 0
        read_latency = channel.late(self._mix) if kind else channel.read_latency
        latency = channel.write_latency if written else read_latency
        latency = channel.chip_latency if kind == ON_CHIP and device is None else latency
        latency = latency if ways < 2 else max(latency, read_latency)
        if device is not None:
            hops, left = self._cross(issued, size, device)
            moved = max(moved, left)
            self._arrive(sent, _Arrival(moved, moved, size, hops > 0))
            latency += hops * self._channel.hop_cycles
        self._arrive(semaphore, _Arrival(moved + latency, moved, size, hops > 0, way))
        if self._watch:
            self._watch(kind, issued, begun, moved, moved + latency, size)

    def _arrive(self, semaphore: float, arrival: _Arrival) -> None:
        insort(self._arrivals.setdefault(semaphore, []), arrival)

    def _cross(self, issued: float, size: float, device: int) -> tuple[int, float]:
        """Hops to a device, and when the link has taken all bytes: of a longer way, of the like of
        them that others send over this one."""
        way, hops = device, int(device != _SELF)
        if self._ring and device > _SELF:
            right = device & DEVICE
            hops = min(right, self._ring - right)
            way = 1 if hops == right else -1
        if not hops:
            return 0, issued
        free, busy = self._links.get(way, (0.0, 0.0))
        takes = hops * size / self._channel.link_bytes_per_cycle
        self._links[way] = max(issued, free) + takes, busy + takes
        return hops, self._links[way][0]

    def tell(self, clock: float, semaphore: float) -> None:
        """Raise a semaphore of a neighbour: the other raises the like of it here."""
        self._raised_at[semaphore] = clock + self.waited + self._channel.hop_cycles

    def hear(self, clock: float, semaphore: float, operation: float) -> None:
        """Wait for a semaphore that others raise, the last time that they have. One that the walked
        device has raised for nobody they raise as it comes to wait."""
        if self._is_alone:
            return
        now = clock + self.waited
        either = (*self._raised_at,) if semaphore == ANY_SEMAPHORE else (semaphore, ANY_SEMAPHORE)
        known = [self._raised_at[s] for s in either if s in self._raised_at]
        self._wait_until(max(known, default=now + self._channel.hop_cycles), now, operation)

    def _wait_until(self, until: float, now: float, operation: float) -> None:
        if until > now:
            self.waited += until - now
            self._linked += until - now
            if self._watch:
                self._watch(LINK_WAITED, now, now, until, until, operation)

    def signal(self, clock: float, amount: float, semaphore: float) -> None:
        """Raise a semaphore at once."""
        size, now = amount * self._channel.granule_bytes, clock + self.waited
        if size > 0:
            self._arrive(semaphore, _Arrival(now, now, size))

    def _move(self, issued: float, size: float, semaphore: float, way: int) -> tuple[float, float]:
        """When the bytes begin and end to move: fast as far as the channel has saved. A copy within
        the chip has no queue."""
        channel, share = self._channel, self._channel.saved_share
        if not channel.shared:
            begun = max(issued, self._moved.get(semaphore, 0.0))
            self._moved[semaphore] = begun + size / channel.bytes_per_cycle
            return begun, self._moved[semaphore]
        if way < 0:
            return issued, issued + size / channel.bytes_per_cycle
        begun = max(issued, self._busy[way])
        saved = self._saved + max(0.0, issued - max(self._busy)) * channel.bytes_per_cycle
        saved = min(saved, share * LARGEST_BURST_BYTES)
        fast = min(size, saved / share) if share else 0.0
        self._saved = saved - fast * share
        fast_cycles = fast / channel.burst_bytes_per_cycle
        takes = fast_cycles + (size - fast) / channel.bytes_per_cycle
        self._busy[way] = begun + takes
        if channel.apart:
            self._busy[way] += self._delay(1 - way, begun, takes)
        return begun, self._busy[way]

    def _delay(self, way: int, begun: float, takes: float) -> float:
        """What reads and writes delay each other by, as each has half of HBM: what is on the other
        ``way`` ends later by as much."""
        shared = min(takes, max(0.0, self._busy[way] - begun))
        self._busy[way] += shared
        for arrivals in self._arrivals.values() if shared else ():
            late = [min(takes, max(0.0, a.moved - begun)) * (a.way == way) for a in arrivals]
            both = zip(arrivals, late, strict=True)
            arrivals[:] = sorted(a._replace(at=a.at + x, moved=a.moved + x) for a, x in both)
        return shared

    def wait(self, clock: float, amount: float, semaphore: float, operation: float = 0.0) -> None:
        """Wait until ``amount`` granules arrived, and take them off the semaphore."""
        missing, now = amount * self._channel.granule_bytes, clock + self.waited
        last = _Arrival(0.0, 0.0, 0.0)
        while missing > 0:
            arrivals = self._arrivals.get(semaphore) or self._arrivals.get(ANY_SEMAPHORE)
            if not arrivals:
                raise UnfitError(f"%{operation:.0f} waits for a DMA that never starts: it may hang")
            last = arrivals.pop(0)
            if last.size > missing:
                arrivals.insert(0, last._replace(size=last.size - missing))
            missing -= last.size
        if last.is_remote:
            self._wait_until(last.at, now, operation)
        elif last.at > now:
            self.waited += last.at - now
            self._latency_waited += last.at - max(now, last.moved)
            if self._watch:
                self._watch(WAITED, now, now, max(now, last.moved), last.at, operation)

    def point(self, clock: float, work: CoreWork) -> RunningTotals:
        """Return the totals now."""
        return RunningTotals(
            cycles=clock + self.waited,
            waited=self.waited - self._linked,
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
            linked=self._linked,
            linking=max((busy for _, busy in self._links.values()), default=0.0),
        )
