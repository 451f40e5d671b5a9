"""Draws a run: what the core, its units and the DMAs do in the first and last grid steps."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import islice
from math import prod
from typing import Any, NamedTuple

from autotune.domain.profile import Cause, NamedPart, SourceLine, within
from autotune.estimating.simulator import constants, dma
from autotune.estimating.simulator.bundles import parse
from autotune.estimating.simulator.dma import RunningTotals
from autotune.estimating.simulator.drawing import activity as activities
from autotune.estimating.simulator.drawing.picture import (
    BYTES,
    CORE,
    ISSUED_IN,
    READS,
    STEPS,
    WRITES,
    Columns,
    Picture,
    Row,
    TraceSlice,
    Track,
    label,
)
from autotune.estimating.simulator.extrapolation import finish
from autotune.estimating.simulator.lowering import (
    HBM_READ,
    HBM_WRITE,
    LINK_WAITED,
    ON_CHIP,
    STEP,
    WAITED,
)
from autotune.estimating.simulator.memory import Scalars
from autotune.estimating.simulator.outcome import NotSimulated, UnfitError
from autotune.estimating.simulator.profiling.attribution import Frames, Owner, Places
from autotune.estimating.simulator.run import record, settle

MOST_DMAS = 5000  # in one picture

_TRACKS = {
    HBM_READ: (READS, "read"),
    HBM_WRITE: (WRITES, "write"),
    HBM_READ + HBM_WRITE: ("copies within HBM", "copy"),
    ON_CHIP: ("copies on the chip", "copy"),
}
_START = RunningTotals(*[0.0] * len(RunningTotals._fields))
_UNITS = {"mxu": "MXU", "xlu": "cross-lane unit"}


class Transfer(NamedTuple):
    """One DMA: its HBM traffic as a sum, when it was issued, began to move, had moved and arrived,
    in cycles; and its bytes."""

    kind: int
    issued: float
    begun: float
    moved: float
    arrived: float
    size: float


def timeline(
    text: str,
    lines: Mapping[int, Frames],
    *,
    chip: str,
    libtpu: str | None = None,
    scalars: Scalars | None = None,
    steps: int = 4,
    file: str = "",
    maps: Mapping[int, Frames] | None = None,
) -> Picture | NotSimulated:
    """Return the first and the last ``steps`` grid steps; ``file``: whose lines have a track each.
    The rest is as in ``profile``."""
    try:
        known = constants.load(chip, libtpu)
        parsed, given = parse(text), scalars or {}
        passes = settle(parsed, known, given)[0].passes  # as many as simulate walks
        places = Places(text, lines, maps or {}, parsed, known)
        return _Drawing(places, known, given, steps, passes, file).picture()
    except UnfitError as reason:
        return NotSimulated(str(reason))


class _Drawing:
    """A run cut into sections: before the outer loop, then each of its passes. ``points`` are the
    totals at their bounds."""

    def __init__(
        self,
        places: Places,
        chip: constants.ChipConstants,
        scalars: Scalars,
        steps: int,
        max_steps: int,
        file: str,
    ) -> None:
        listing = places.listing
        self._places, self._listing, self._chip, self._file = places, listing, chip, file
        # The pipeline's first pass only reads, its last one only writes: one more of each.
        self._each_end = steps + listing.pipelined
        self._visits = activities.VisitCollector(self._each_end)
        self._recording = record(listing, chip, scalars, max_steps, self._visits)
        self._transfers: list[Transfer] = []
        self._waits: list[activities.Wait] = []
        events, final = self._recording.events, self._recording.final
        self._line = dma.replay(events, dma.shared(chip), final, self._watch)
        ended = self._recording.passes_left is None
        self._points = [_START, *self._line.points, *([self._line.end] if ended else [])]
        self._bounds = [point.cycles for point in self._points]
        self._steps = self._recording.grid_steps(listing)

    def picture(self) -> Picture:
        shown = self._shown()
        steady = self._steady(shown)
        tracks = self._activity(shown, steady)
        lines = sorted(track for track in tracks if isinstance(track, SourceLine))
        parts = [part for part in NamedPart if part in tracks]
        units = sorted({*tracks}.difference(lines, parts, [CORE]), key=str)
        return Picture(
            tracks=(
                Track(STEPS, list(self._sections(shown))),
                *(Track(str(name), tracks[name]) for name in (CORE, *units)),
                *_dma_tracks(islice(self._drawn(shown), MOST_DMAS), self._us),
                *(Track(label(line), tracks[line], line) for line in lines),
                *(Track(part.value, tracks[part]) for part in parts),
            ),
            step=self._name(steady),
            steps=self._steps,
            total_us=self._us(finish(self._line, self._recording, self._listing).cycles),
            notes=tuple(self._notes(shown)),
        )

    def _watch(
        self, kind: int, issued: float, begun: float, moved: float, arrived: float, size: float
    ) -> None:
        if kind in (WAITED, LINK_WAITED):
            cause = Cause.HBM if kind == WAITED else Cause.LINKS
            self._waits.append(activities.Wait(issued, moved, arrived, int(size), cause))
        elif kind != STEP:
            self._transfers.append(Transfer(kind, issued, begun, moved, arrived, size))

    def _us(self, cycles: float) -> float:
        return cycles / self._chip.clock_hz * 1e6

    def _shown(self) -> list[int]:
        count = len(self._points) - 1
        first = min(self._each_end + 1, count)
        return [*range(first), *range(max(first, count - self._each_end), count)]

    def _name(self, section: int) -> str:
        """Steps and passes count from 0, as ``pl.program_id`` does."""
        number = section - 1
        if number < 0:
            return "before the loop" if len(self._points) > 2 else "whole kernel"
        if not self._listing.pipelined:
            return f"pass {number}"
        if number == 0:
            return "first reads"
        return f"step {number - 1}" if number <= self._steps else "last writes"

    def _sections(self, shown: list[int]) -> Iterator[TraceSlice]:
        """A slice for each section, and one for those between that are not shown."""
        before = 0
        for section in shown:
            if section > before:
                name = f"{self._name(before)} to {self._name(section - 1)}, not shown"
                yield self._section(name, before, section, {})
            yield self._section(
                self._name(section), section, section + 1, self._grid_index(section)
            )
            before = section + 1

    def _section(self, name: str, first: int, stop: int, details: dict[str, Any]) -> TraceSlice:
        then, now = self._points[first], self._points[stop]
        done = RunningTotals(*(b - a for a, b in zip(then, now, strict=True)))
        parts = {name: self._us(cycles) for name, cycles in done.parts().items()}
        details = {
            **details,
            **{f"{name}, µs": round(us, 4) for name, us in parts.items() if us},
            "MXUs busy, µs": round(self._us(done.mxu), 4),
            "DMAs": round(done.reads + done.writes),
            "bytes read": round(done.read_bytes),
            "bytes written": round(done.written_bytes),
        }
        return TraceSlice(name, self._us(then.cycles), self._us(now.cycles), details)

    def _grid_index(self, section: int) -> dict[str, Any]:
        """Where in the grid the step is, where that is known. On a megacore, in the core's part."""
        grid, number = self._listing.grid, section - 2
        known = self._listing.pipelined and prod(grid) == self._steps
        if not known or not 0 <= number < self._steps:
            return {}
        index = []
        for bound in reversed(grid):
            number, place = divmod(number, bound)
            index.append(place)
        return {"grid index": str(tuple(reversed(index)))}

    def _steady(self, shown: list[int]) -> int:
        """A section whose length is in the middle of those of steps; without any the longest."""

        def cycles(section: int) -> float:
            return self._bounds[section + 1] - self._bounds[section]

        steps = [n for n in shown if self._name(n).startswith(("step", "pass"))]
        ordered = sorted(steps or shown, key=cycles)
        return ordered[len(ordered) // 2 if steps else -1]

    def _row(self, owner: Owner) -> Row:
        return owner if isinstance(owner, NamedPart) else within(owner, self._file)[-1]

    def _activity(self, shown: list[int], steady: int) -> dict[str | Row, list[TraceSlice]]:
        """Of the core and of each unit, and in the steady section of each line of the file."""
        activity = activities.Activity(self._places, self._chip, self._waits)
        name = cache(lambda owner: label(self._row(owner)))
        tracks: dict[str | Row, list[TraceSlice]] = {CORE: []}
        for section in shown:
            begin, end = self._bounds[section : section + 2]
            columns = defaultdict[str | Row, Columns](partial(Columns, begin, end))
            visits = self._visits.sections.get(section, [])
            for (owner, cause, opcode), at, stop, cycles in activity.core(visits, begin, end):
                for track in (CORE, self._row(owner))[: 1 + (section == steady)]:
                    columns[track].add(cause.value, name(owner), at, stop, cycles, opcode)
            for unit, owner, at, stop in activity.units(visits):
                track = f"{_UNITS[unit[:3]]} {unit[3:]}"
                columns[track].add("busy", name(owner), at, stop, stop - at)
            for track, each in columns.items():
                tracks.setdefault(track, []).extend(each.slices(self._us))
        return tracks

    def _drawn(self, shown: list[int]) -> Iterator[tuple[Transfer, str]]:
        """DMAs that are issued in the sections shown, or on their way when one begins."""
        gaps = [self._bounds[n] for n in shown if n and n - 1 not in shown]
        for transfer in self._transfers:
            section = min(bisect_right(self._bounds, transfer.issued), len(self._bounds) - 1) - 1
            if section in shown or any(transfer.issued < gap < transfer.arrived for gap in gaps):
                yield transfer, self._name(section)

    def _notes(self, shown: list[int]) -> Iterator[str]:
        passes, left = self._recording.passes, self._recording.passes_left
        if left is not None:
            yield (
                f"simulated are the first {passes} of {passes + left} passes of the outer loop, "
                "the rest is extrapolated: the last steps drawn are the last simulated"
            )
        if self._chip.stalls is None:
            yield f"{self._chip.name}: stalls and units are not modelled"
        if self._visits.cut:
            yield "core and units are drawn only for the begin of each long step"
        if sum(1 for _ in self._drawn(shown)) > MOST_DMAS:
            yield f"only the first {MOST_DMAS} DMAs are drawn"


def _dma_tracks(
    transfers: Iterable[tuple[Transfer, str]], to_us: Callable[[float], float]
) -> list[Track]:
    """The tracks of DMAs, each given with the name of the step that issues it, in that order.

    DMAs that are under way at the same time lie on tracks of their own.
    """
    rows: dict[int, list[tuple[float, list[TraceSlice]]]] = {kind: [] for kind in _TRACKS}
    for transfer, step in transfers:
        lanes = rows[transfer.kind]
        free = next((n for n, (end, _) in enumerate(lanes) if end <= transfer.issued), len(lanes))
        slices = lanes[free][1] if free < len(lanes) else []
        lanes[free : free + 1] = [(transfer.arrived, slices)]
        slices.extend(_dma_slices(transfer, step, to_us))
    return [
        Track(f"{_TRACKS[kind][0]} {n + 1}" if len(lanes) > 1 else _TRACKS[kind][0], slices)
        for kind, lanes in rows.items()
        for n, (_, slices) in enumerate(lanes)
    ]


def _dma_slices(
    transfer: Transfer, step: str, to_us: Callable[[float], float]
) -> Iterator[TraceSlice]:
    """The whole DMA, and in it the queue for HBM, the transfer and the latency."""
    issued, begun, moved, arrived = map(to_us, transfer[1:5])
    name = f"{_TRACKS[transfer.kind][1]} {transfer.size / 1024:g} KiB"
    yield TraceSlice(name, issued, arrived, {BYTES: round(transfer.size), ISSUED_IN: step})
    phases = (("queue", issued, begun), ("transfer", begun, moved), ("latency", moved, arrived))
    for phase, begin, end in phases:
        if end > begin:
            yield TraceSlice(phase, begin, end, {})
