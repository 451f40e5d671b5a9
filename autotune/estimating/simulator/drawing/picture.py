"""What a picture of a run is made of, slices of time on tracks: plain data, for any viewer; and as
a trace for ui.perfetto.dev, or columns of equal length."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath
from typing import Any, NamedTuple

from autotune.domain.explanation import OperationTime
from autotune.domain.profile import NamedPart, Profile, SourceLine

STEPS, CORE, READS, WRITES = "grid steps", "core", "HBM reads", "HBM writes"
XLA = "operations of XLA, in their order"
BYTES, ISSUED_IN = "bytes", "issued in"
LINE, SHARE, OPERATIONS = "line", "share of the time", "operations"


class TraceSlice(NamedTuple):
    """Something that lasts, microseconds from the begin of the call."""

    name: str
    begin_us: float
    end_us: float
    details: dict[str, Any]


class Track(NamedTuple):
    """Slices in order of their begin; two of them lie apart, or one lies within the other.
    ``line``: of the source, of which it is the track."""

    name: str
    slices: list[TraceSlice]
    line: SourceLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One core, in the reading of real time. ``total_us``: the whole run. ``step``: the slice of
    ``STEPS`` that is drawn by line of the source as well, one like most."""

    tracks: tuple[Track, ...]
    steps: int
    total_us: float
    notes: tuple[str, ...]
    step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProfile:
    """Of a config, a trial or a function: of each of its calls a profile, and a picture if asked;
    and XLA's operations ``around`` them, each with its *file:line*, empty where none is known."""

    name: str
    calls: tuple[Profile, ...]
    pictures: tuple[Picture, ...] = ()
    around: tuple[tuple[OperationTime, str], ...] = ()


def trace_json(pictures: Sequence[tuple[str, Picture]]) -> str:
    """The text of a trace file; each (title, picture) becomes a process, each track a thread."""
    events = [
        event
        for pid, (title, picture) in enumerate(pictures, start=1)
        for event in _process(pid, title, picture)
    ]
    about = {
        title: {
            "estimated time, µs": picture.total_us,
            "grid steps of a core": picture.steps,
            "notes": [*picture.notes, "simulated, not measured"],
        }
        for title, picture in pictures
    }
    trace = {"displayTimeUnit": "ns", "otherData": about, "traceEvents": events}
    return json.dumps(trace, ensure_ascii=False)


def _process(pid: int, title: str, picture: Picture) -> Iterator[dict[str, Any]]:
    label = "; ".join([f"{picture.total_us:.1f} µs, simulated", *picture.notes])
    yield _about(pid, 0, "process_name", name=title)
    yield _about(pid, 0, "process_labels", labels=label)
    yield _about(pid, 0, "process_sort_index", sort_index=pid)
    for tid, track in enumerate(picture.tracks, start=1):
        yield _about(pid, tid, "thread_name", name=track.name)
        yield _about(pid, tid, "thread_sort_index", sort_index=tid)
        for piece in track.slices:
            yield _complete(pid, tid, piece)


def _about(pid: int, tid: int, what: str, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": args}


def _complete(pid: int, tid: int, piece: TraceSlice) -> dict[str, Any]:
    begin_ns, end_ns = round(piece.begin_us * 1000), round(piece.end_us * 1000)
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "name": piece.name,
        "ts": _microseconds(begin_ns),
        "dur": _microseconds(end_ns - begin_ns),
        "args": piece.details,
    }


def _microseconds(nanoseconds: int) -> float:
    """Perfetto counts whole nanoseconds and cuts off the rest of ``ts * 1000``: the number must not
    end up one below, or neighbours would overlap, and a slice that overlaps is dropped."""
    us = nanoseconds / 1000
    return us if int(us * 1000) == nanoseconds else math.nextafter(us, math.inf)


_COLUMNS = 200  # of a section
_LEVELS = 4  # of how busy it is: neighbours that differ by less are one slice
_MOST_OPCODES = 6  # are named of a slice

Row = SourceLine | NamedPart


def label(row: Row) -> str:
    """A line with its place and text, or the name of a part."""
    if isinstance(row, NamedPart):
        return row.value
    return f"{PurePath(row.file).name}:{row.line} {row.text}"


class Columns:
    """Of one track, from ``begin`` to ``end``, cycles."""

    def __init__(self, begin: float, end: float) -> None:
        self._begin, self._width = begin, max(end - begin, 1.0) / _COLUMNS
        self._cycles: dict[int, Counter[tuple[str, str]]] = {}
        self._opcodes: dict[int, Counter[str]] = {}

    def add(
        self, kind: str, line: str, begin: float, end: float, cycles: float, opcode: str = ""
    ) -> None:
        """``cycles``: of those from ``begin`` to ``end``, which several may share."""
        first = self._column(begin)
        for number in range(first, self._column(end) + 1):
            within = min(end, self._edge(number + 1)) - max(begin, self._edge(number))
            if within > 0:
                column = self._cycles.setdefault(number, Counter())
                column[kind, line] += cycles * within / (end - begin)  # type: ignore[assignment]
        if opcode:
            self._opcodes.setdefault(first, Counter())[opcode] += 1

    def _column(self, cycle: float) -> int:
        return min(max(int((cycle - self._begin) / self._width), 0), _COLUMNS - 1)

    def _edge(self, number: int) -> float:
        return self._begin + number * self._width

    def slices(self, to_us: Callable[[float], float]) -> Iterator[TraceSlice]:
        """Neighbours of the same kind and about the same share as one."""
        cycles = self._cycles

        def key(place: tuple[int, int]) -> tuple[str, int, int]:
            order, number = place
            level = int(_LEVELS * cycles[number].total() / self._width)
            return next(iter(_sums(cycles[number], 0))), level, number - order

        for (kind, *_), group in groupby(enumerate(sorted(cycles)), key):
            numbers = [number for _, number in group]
            begin, end = self._edge(numbers[0]), self._edge(numbers[-1] + 1)
            issued, spent = Counter[str](), Counter[tuple[str, str]]()
            for number in numbers:
                issued += self._opcodes.get(number, Counter())
                spent += cycles[number]
            details = {
                LINE: next(iter(_sums(spent, 1))),
                SHARE: round(min(spent.total() / (end - begin), 1.0), 6),
                **{f"{what}, µs": round(to_us(n), 6) for what, n in _sums(spent, 0).items()},
                OPERATIONS: dict(issued.most_common(_MOST_OPCODES)),
            }
            yield TraceSlice(kind, to_us(begin), to_us(end), details)


def _sums(cycles: Counter[tuple[str, str]], field: int) -> dict[str, float]:
    """By one field of the keys, the most first."""
    sums = Counter[str]()
    for key, count in cycles.items():
        sums[key[field]] += count
    return dict(sums.most_common())
