"""What core and units do in the blocks that ran, in time with the waits, and for which line of the
source: for a picture."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from autotune.domain.profile import Cause
from autotune.estimating.simulator.bundles import Listing
from autotune.estimating.simulator.constants import ChipConstants
from autotune.estimating.simulator.lowering import STEP, Event
from autotune.estimating.simulator.profiling.attribution import Charge, Owner, Places
from autotune.estimating.simulator.stalls import Costs, price

MOST_VISITS = 20_000  # of blocks in one pass; the rest of the pass is not drawn
_DIGITS = 6  # of a cycle: what is equal but for rounding is equal


class Visit(NamedTuple):
    """One run of a block: the walk's clock (cycles without waits), bundles ``start`` to ``stop``
    (exclusive), and delay slots that are not printed."""

    clock: float
    start: int
    stop: int
    extra: int


class Wait(NamedTuple):
    """The core waits for a DMA; cycles. ``moved``: from then on for its latency alone.
    ``operation``: the number of the one that waits; ``cause``: HBM or links."""

    begin: float
    moved: float
    end: float
    operation: int
    cause: Cause


class Spell(NamedTuple):
    """Something that one line does or waits for, from ``begin`` to ``end``, cycles. ``cycles``: of
    these, as lines share a bundle."""

    charge: Charge
    begin: float
    end: float
    cycles: float


class VisitCollector:
    """Collects the visits of the first and the last ``passes`` sections of a walk. Section 0 is
    before the outer loop, section n + 1 its pass n."""

    def __init__(self, passes: int) -> None:
        self._passes = passes
        self.sections: dict[int, list[Visit]] = {0: []}
        self.section = 0
        self.cut = False  # some section had more than MOST_VISITS

    def __call__(self, event: Event) -> None:
        clock, start, stop, kind, more = event
        if kind == STEP:
            self._open()
        elif len(self.sections[self.section]) < MOST_VISITS:
            visit = Visit(clock, int(start), int(stop), int(more[0]))
            self.sections[self.section].append(visit)
        else:
            self.cut = True

    def _open(self) -> None:
        self.section += 1
        self.sections[self.section] = []
        old = self.section - self._passes - 1
        if old > self._passes:
            self.sections.pop(old, None)


class Activity:
    """Turns visits into what they are spent on, in time, which holds the waits."""

    def __init__(self, places: Places, chip: ChipConstants, waits: Sequence[Wait]) -> None:
        self._listing: Listing = places.listing
        self._places, self._waits = places, waits
        self._at: list[float] = []  # of each wait, on the walk's clock
        self._lost = [0.0]
        for begin, _, end, *_ in waits:
            self._at.append(round(begin - self._lost[-1], _DIGITS))
            self._lost.append(self._lost[-1] + end - begin)
        self._occupied: dict[int, list[tuple[str, float, float]]] = {}
        self._costs: Costs = price(self._listing, chip, self._occupy)
        self._blocks: dict[Visit, list[Spell]] = {}

    def core(self, visits: Sequence[Visit], begin: float, end: float) -> Iterator[Spell]:
        """What issues, stalls and waits from ``begin`` to ``end``."""
        for visit in visits:
            block = visit._replace(clock=0.0)
            if block not in self._blocks:
                self._blocks[block] = list(self._bundles(block))
            for charge, start, stop, cycles in self._blocks[block]:
                at = self._time(visit.clock + start)
                yield Spell(charge, at, at + stop - start, cycles)
        for at, moved, stop, operation, cause in self._waits:
            if begin <= at < end:
                owner = self._places.wait(operation)
                yield Spell(Charge(owner, cause), at, moved, moved - at)
                yield Spell(Charge(owner, Cause.LATENCY), moved, stop, stop - moved)

    def units(self, visits: Sequence[Visit]) -> Iterator[tuple[str, Owner, float, float]]:
        """When each MXU and XLU is occupied, and for which line."""
        for clock, first, stop, _ in visits:
            base = first + 1 + self._costs.stalls_before[first]
            for address in range(first, stop):
                for unit, begin, end in self._occupied.get(address, ()):
                    at = self._time(clock + begin - base)
                    yield unit, self._places.on_unit(address, unit), at, at + end - begin

    def _time(self, walked: float) -> float:
        """From the clock of the walk: a wait right there is over."""
        return walked + self._lost[bisect_right(self._at, round(walked, _DIGITS))]

    def _occupy(self, unit: str, address: int, begin: float, end: float) -> None:
        self._occupied.setdefault(address, []).append((unit, begin, end))

    def _bundles(self, block: Visit) -> Iterator[Spell]:
        """The stall and the issue of each bundle, from the begin of the block."""
        now, lanes = 0.0, self._costs.lane_stalls_before
        if block.start == block.stop:
            yield Spell(self._places.scalar(block.start), now, block.extra, block.extra)
        for address in range(block.start, block.stop):
            issued = self._costs.clock(block.start, address)
            if issued > now:
                is_lane = lanes[address + 1] > lanes[address]
                owner = self._places.stall(self._costs.late[address])
                cause = Cause.LANE_STALL if is_lane else Cause.MATRIX_STALL
                yield Spell(Charge(owner, cause), now, issued, issued - now)
            now = issued + 1 + (block.extra if address == block.stop - 1 else 0)
            charges = self._places.issue(address, block.stop)
            for charge in charges:
                yield Spell(charge, issued, now, (now - issued) / len(charges))
