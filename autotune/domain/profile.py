"""Where the time of one kernel goes, by line of its source: what no line has brought about is a
named part, and together they are the estimate, to the cycle."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from autotune.domain.explanation import TimePart
from autotune.domain.limits import MOST_NAMES, Bytes, Count, Limit, Text, Word


class Cause(StrEnum):
    """What a cycle of the core was spent on: a bundle that issued, a stall, or a wait."""

    VECTOR = "vector issue"
    MATRIX = "matrix issue"
    LANE = "cross-lane issue"
    MEMORY = "load and store issue"
    SPILL = "spills"
    EMPTY = "empty bundles"
    SCALAR = TimePart.SCALAR.value
    STEPS = "steps of the pipeline"
    MATRIX_STALL = TimePart.MATRIX.value
    LANE_STALL = TimePart.LANES.value
    HBM = TimePart.HBM.value
    LATENCY = TimePart.LATENCY.value
    LINKS = TimePart.LINKS.value


UNITS = {
    Cause.VECTOR: "VPU",
    Cause.MATRIX: "MXU",
    Cause.MATRIX_STALL: "MXU",
    Cause.LANE: "XLU",
    Cause.LANE_STALL: "XLU",
    Cause.MEMORY: "load/store",
    Cause.SPILL: "load/store",
    Cause.EMPTY: "none",
    Cause.SCALAR: "scalar",
    Cause.STEPS: "scalar",
    Cause.HBM: "HBM",
    Cause.LATENCY: "HBM",
    Cause.LINKS: "links",
}


class NamedPart(StrEnum):
    """Names of what has no line."""

    FILL = "pipeline fill"
    PIPELINE = Cause.STEPS.value
    PIPELINE_WAITS = "DMA waits of the pipeline"
    WAITS = "DMA waits"
    PROLOGUE = "prologue"
    EPILOGUE = "epilogue"
    LOOP = "scalars of loops and branches"
    NO_LOCATION = "operations without a line"


class ProfileNote(StrEnum):
    """What has to be said of a profile."""

    NOTHING = ""
    NO_LINES = "this libtpu names no lines"


Cycles = Annotated[tuple[tuple[Cause, Bytes], ...], Limit(longest=len(Cause))]
"""By cause, those that took some."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SourceLine:
    """One line of a file, counted from 1. ``function``: the innermost that it stands in."""

    file: Text
    line: Count
    function: Word = ""
    text: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRow:
    """Cycles of one core over the whole run that a line has cost, or a named ``part`` without one.

    ``frames``: the calls from a line of the kernel to the line itself, which is the last; empty for
    a part. ``runs``: how often it ran, the most of its bundles.
    """

    frames: Annotated[tuple[SourceLine, ...], Limit(longest=MOST_NAMES)] = ()
    part: NamedPart | None = None
    cycles: Cycles
    runs: Count

    @property
    def total(self) -> int:
        return sum(cycles for _, cycles in self.cycles)

    @property
    def unit(self) -> str:
        """The unit that it keeps busy, or waits for, the longest."""
        units: dict[str, int] = {}
        for cause, cycles in self.cycles:
            units[UNITS[cause]] = units.get(UNITS[cause], 0) + cycles
        return max(units, key=lambda unit: units[unit], default="")

    @property
    def steps(self) -> int:
        """Cycles of the pipeline's own operations, which no line of the kernel's body has."""
        return (
            self.total if self.part is NamedPart.PIPELINE else dict(self.cycles).get(Cause.STEPS, 0)
        )

    def within(self, file: str) -> tuple[SourceLine, ...]:
        return within(self.frames, file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Of one ``pallas_call``, one core of it. ``cycles``: of the whole run, the sum of all rows;
    ``clock_hz`` makes them a time. ``source``: the lines of the kernel's file around those that
    take some of the time, by their numbers."""

    kernel: Text
    cycles: Bytes
    clock_hz: float
    rows: Annotated[tuple[ProfileRow, ...], Limit(longest=100_000)]
    note: ProfileNote = ProfileNote.NOTHING
    source: Annotated[tuple[tuple[Count, Text], ...], Limit(longest=100_000)] = ()

    @property
    def us(self) -> float:
        return self.cycles / self.clock_hz * 1e6

    @property
    def on_lines(self) -> float:
        """The share of the cycles that has a line."""
        located = sum(row.total for row in self.rows if row.frames)
        return located / self.cycles if self.cycles else 0.0

    @property
    def file(self) -> str:
        """The file of the kernel: most cycles pass through it; of two alike the inner one."""
        cycles: dict[str, int] = {}
        for row in self.rows:
            for file in dict.fromkeys(frame.file for frame in reversed(row.frames)):
                cycles[file] = cycles.get(file, 0) + row.total
        return max(cycles, key=lambda file: cycles[file], default="")

    def folded(self) -> tuple[ProfileRow, ...]:
        """A row for each line of the kernel's file, with what it calls in others, and for each
        part; those with the most cycles first."""
        file = self.file
        rows = merged(replace(row, frames=row.within(file)[-1:]) for row in self.rows)
        return tuple(sorted(rows, key=lambda row: -row.total))

    def called_from(self, line: ProfileRow) -> tuple[ProfileRow, ...]:
        """What is folded into a row of ``folded``: lines of other files that it calls."""
        rows = ((row, row.within(self.file)) for row in self.rows)
        below = merged(
            replace(row, frames=row.frames[len(inside) :])
            for row, inside in rows
            if row.frames[len(inside) :] and inside[-1:] == line.frames
        )
        return tuple(sorted(below, key=lambda row: -row.total))


def within(frames: tuple[SourceLine, ...], file: str) -> tuple[SourceLine, ...]:
    """The frames up to the last in the file; where none is in it the first."""
    places = [n for n, frame in enumerate(frames, 1) if frame.file == file]
    return frames[: max(places, default=1)]


def merged(rows: Iterable[ProfileRow]) -> Iterator[ProfileRow]:
    """Rows of the same line or part as one."""
    alike: dict[tuple[object, ...], list[ProfileRow]] = {}
    for row in rows:
        alike.setdefault((row.frames, row.part), []).append(row)
    for same in alike.values():
        yield replace(same[0], cycles=_sum(same), runs=max(row.runs for row in same))


def _sum(rows: Sequence[ProfileRow]) -> Cycles:
    total: dict[Cause, int] = {}
    for cause, cycles in (pair for row in rows for pair in row.cycles):
        total[cause] = total.get(cause, 0) + cycles
    return tuple(total.items())
