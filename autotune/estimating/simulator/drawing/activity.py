"""What core and units do in the blocks that ran, in time with the waits: for a picture."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from autotune.domain.explanation import HBM, ISSUE, LANES, LATENCY, MATRIX, SCALAR
from autotune.estimating.simulator.bundles import Listing
from autotune.estimating.simulator.constants import ChipConstants
from autotune.estimating.simulator.lowering import STEP, Event
from autotune.estimating.simulator.stalls import Costs, price

MOST_SLICES = 4000  # on one track: beyond, the short ones are merged
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
    """The core waits for a DMA; cycles. ``moved``: from then on for its latency alone."""

    begin: float
    moved: float
    end: float


class Piece(NamedTuple):
    """A stretch of time of one kind; cycles."""

    kind: str
    begin: float
    end: float
    operations: int = 1


class Stretch(NamedTuple):
    """Neighbouring pieces as one. ``cycles`` says how many of them are of which kind."""

    begin: float
    end: float
    cycles: dict[str, float]
    operations: int

    @property
    def kind(self) -> str:
        """What most of it is."""
        return max(self.cycles, key=lambda kind: self.cycles[kind])


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


class Clock:
    """From the clock of the walk to time, which holds the waits."""

    def __init__(self, waits: Sequence[Wait]) -> None:
        self._waits = waits
        self._at: list[float] = []  # on the walk's clock
        self._lost = [0.0]
        for begin, _, end in waits:
            self._at.append(round(begin - self._lost[-1], _DIGITS))
            self._lost.append(self._lost[-1] + end - begin)

    def before(self, walked: float) -> float:
        """The time of an end: a wait right there has not begun."""
        return walked + self._lost[bisect_left(self._at, walked)]

    def after(self, walked: float) -> float:
        """The time of a begin: a wait right there is over."""
        return walked + self._lost[bisect_right(self._at, walked)]

    def within(self, begin: float, end: float) -> Iterator[tuple[float, Wait]]:
        """The waits from ``begin`` to before ``end``, each with its place on the walk's clock."""
        for n in range(bisect_left(self._at, begin), bisect_left(self._at, end)):
            yield self._at[n], self._waits[n]


class Activity:
    """Turns visits into stretches of time, cycles."""

    def __init__(self, listing: Listing, chip: ChipConstants, clock: Clock) -> None:
        self._listing, self._clock = listing, clock
        self._occupied: dict[int, list[tuple[str, float, float]]] = {}
        self._costs: Costs = price(listing, chip, self._occupy)
        self._runs: dict[Visit, list[Piece]] = {}
        self._uses: dict[Visit, list[Piece]] = {}

    def core(self, sections: list[list[Visit]]) -> list[Stretch]:
        """Issue, stalls and waits, without gaps while the visits follow each other. No stretch
        lies over the edge of a section."""
        pieces = [
            [p for v in visits for run in self._core(v) for p in self._timed(run)]
            for visits in sections
        ]
        return _joined(pieces)

    def units(self, visits: list[Visit]) -> dict[str, list[Stretch]]:
        """When each MXU and XLU is occupied."""
        by_unit: dict[str, list[Piece]] = {}
        for visit in visits:
            for unit, begin, end, _ in self._units(visit):
                pieces = by_unit.setdefault(unit, [])
                at = self._clock.after(round(visit.clock + begin, _DIGITS))
                free = max(at, pieces[-1].end) if pieces else at  # a block jumped to elsewhere
                if at + end - begin > free:
                    pieces.append(Piece("busy", free, at + end - begin))
        return {unit: _merged(pieces) for unit, pieces in sorted(by_unit.items())}

    def _occupy(self, unit: str, address: int, begin: float, end: float) -> None:
        self._occupied.setdefault(address, []).append((unit, begin, end))

    def _units(self, visit: Visit) -> list[Piece]:
        """What the block asks of its units, from the begin of the block."""
        block = visit._replace(clock=0.0)
        if block not in self._uses:
            base = visit.start + 1 + self._costs.stalls_before[visit.start]
            self._uses[block] = [
                Piece(unit, begin - base, end - base)
                for address in range(visit.start, visit.stop)
                for unit, begin, end in self._occupied.get(address, ())
            ]
        return self._uses[block]

    def _core(self, visit: Visit) -> Iterator[Piece]:
        block = visit._replace(clock=0.0)
        if block not in self._runs:
            self._runs[block] = _same(self._bundles(block))
        for kind, *edges, operations in self._runs[block]:
            begin, end = (round(visit.clock + edge, _DIGITS) for edge in edges)
            yield Piece(kind, begin, end, operations)

    def _bundles(self, block: Visit) -> Iterator[Piece]:
        """The stall and the issue of each bundle, from the begin of the block."""
        now, lanes = 0.0, self._costs.lane_stalls_before
        for address in range(block.start, block.stop):
            issued = self._costs.clock(block.start, address)
            if issued > now:
                lane = lanes[address + 1] > lanes[address]
                yield Piece(LANES if lane else MATRIX, now, issued, 0)
            now = issued + 1
            yield Piece(ISSUE if self._listing.bundles[address].vector else SCALAR, issued, now)
        if block.extra:
            yield Piece(SCALAR, now, now + block.extra)

    def _timed(self, piece: Piece) -> Iterator[Piece]:
        """The piece in time, cut where the core waits."""
        kind, begin, end, operations = piece
        for at, (wait, moved, until) in self._clock.within(begin, end):
            if at > begin:
                yield Piece(kind, self._clock.after(begin), self._clock.before(at), 0)
            if moved > wait:
                yield Piece(HBM, wait, moved)
            if until > moved:
                yield Piece(LATENCY, moved, until)
            begin = at
        yield Piece(kind, self._clock.after(begin), self._clock.before(end), operations)


def _same(pieces: Iterable[Piece]) -> list[Piece]:
    """Neighbours of the same kind as one."""
    runs: list[Piece] = []
    for piece in pieces:
        if runs and runs[-1].kind == piece.kind:
            last = runs[-1]
            operations = last.operations + piece.operations
            runs[-1] = last._replace(end=piece.end, operations=operations)
        else:
            runs.append(piece)
    return runs


def _joined(sections: list[list[Piece]]) -> list[Stretch]:
    """At most about MOST_SLICES stretches: what is too short goes to its neighbour, counted."""
    shortest, most = 2.0, max(MOST_SLICES, len(sections))
    while True:
        stretches: list[Stretch] = []
        for pieces in sections:
            _absorb(stretches, pieces, shortest)
        if len(stretches) <= most:
            return stretches
        shortest *= 2


def _absorb(stretches: list[Stretch], pieces: list[Piece], shortest: float) -> None:
    for n, (kind, begin, end, operations) in enumerate(pieces):
        last = stretches[-1] if stretches else None
        follows = last is not None and abs(last.end - begin) < 10**-_DIGITS
        short = last is not None and min(end - begin, last.end - last.begin) < shortest
        if n and last and follows and (short or last.kind == kind):
            cycles = Counter(last.cycles)
            cycles[kind] += end - begin  # type: ignore[assignment]
            stretches[-1] = Stretch(last.begin, end, dict(cycles), last.operations + operations)
        else:
            edge = last.end if last and follows else begin
            stretches.append(Stretch(edge, end, {kind: end - begin}, operations))


def _merged(pieces: list[Piece]) -> list[Stretch]:
    """At most MOST_SLICES stretches: the smallest gaps between pieces are closed."""
    gap = 0.0
    while True:
        stretches: list[Stretch] = []
        for kind, begin, end, operations in pieces:
            last = stretches[-1] if stretches else None
            if last and begin - last.end <= gap + 10**-_DIGITS:
                busy = {kind: last.cycles[kind] + end - begin}
                stretches[-1] = Stretch(last.begin, end, busy, last.operations + operations)
            else:
                stretches.append(Stretch(begin, end, {kind: end - begin}, operations))
        if len(stretches) <= MOST_SLICES:
            return stretches
        gap = gap * 2 or 1.0
