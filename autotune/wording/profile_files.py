"""Profiles in formats of other tools: stacks of a flame graph, pprof, and traces of Perfetto."""

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

from autotune.domain.explanation import OperationTime
from autotune.domain.profile import Profile, ProfileRow, SourceLine
from autotune.domain.protobuf import field, packed
from autotune.estimating.simulator.drawing.picture import (
    BYTES,
    LINE,
    XLA,
    ConfigProfile,
    Picture,
    TraceSlice,
    Track,
    trace_json,
)
from autotune.wording.units import micros

Stack = tuple[SourceLine, ...]
"""The outermost first; a kernel, a config and what has no line are functions without a file."""


def stacks(named: Sequence[ConfigProfile]) -> Iterator[tuple[Stack, Profile, ProfileRow]]:
    """Each row below the calls that lead to it; of several configs each."""
    for config in named:
        for call in config.calls:
            above = _named(*[config.name, call.kernel][len(named) == 1 :])
            for row in call.rows:
                yield above + (row.frames or _named(str(row.part))), call, row


def _named(*names: str) -> Stack:
    return tuple(SourceLine(file="", line=0, function=name) for name in names)


def folded_stacks(named: Sequence[ConfigProfile]) -> str:
    """``kernel;file:line;callee file:line cycles``, a stack a line, for flamegraph.pl, speedscope
    and others."""
    return "".join(
        f"{';'.join(map(_folded, stack))} {row.total}\n" for stack, _, row in stacks(named)
    )


def _folded(frame: SourceLine) -> str:
    place = f"{PurePath(frame.file).name}:{frame.line}" if frame.file else ""
    return " ".join(f"{frame.function} {place}".replace(";", ",").split())


def perfetto_trace(named: Sequence[ConfigProfile]) -> str:
    """With a process for each call, for ui.perfetto.dev."""
    pictures = []
    for config in named:
        for call, picture in zip(config.calls, config.pictures, strict=True):
            title = f"{config.name}: {call.kernel}" if len(config.calls) > 1 else config.name
            pictures.append((title, with_xla(picture, config.around)))
    return trace_json(pictures)


def with_xla(picture: Picture, operations: Sequence[tuple[OperationTime, str]]) -> Picture:
    """With what XLA does around the kernel on a track of its own."""
    if not operations:
        return picture
    slices, now = [], 0.0
    for operation, line in operations:
        details = {"opcode": operation.opcode, "runs": operation.runs, BYTES: operation.hbm_bytes}
        details |= {LINE: line} if line else {}
        slices.append(TraceSlice(operation.name, now, now + operation.time_us, details))
        now += operation.time_us
    note = f"XLA adds {micros(now)} around the kernel: its track says how long, not when"
    tracks = (*picture.tracks, Track(XLA, slices))
    return replace(picture, tracks=tracks, notes=(*picture.notes, note))


_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING, _DEFAULT = 1, 2, 4, 5, 6, 14


class PprofFile:
    """A message of profile.proto (github.com/google/pprof), as it is put together."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {"": 0}
        self._functions: dict[tuple[str, str], int] = {}
        self._locations: dict[tuple[int, int], int] = {}
        self._samples: list[bytes] = []

    def add(self, stack: Stack, call: Profile, row: ProfileRow) -> None:
        """A sample for each cause, with its cycles and nanoseconds."""
        locations = packed(map(self._location, reversed(stack)))
        for cause, cycles in row.cycles:
            values = packed([cycles, round(cycles / call.clock_hz * 1e9)])
            label = field(1, self._string("cause")) + field(2, self._string(cause.value))
            self._samples.append(field(1, locations) + field(2, values) + field(3, label))

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _location(self, frame: SourceLine) -> int:
        """A line of a function, numbered from 1."""
        function = frame.function or PurePath(frame.file).name, frame.file
        number = self._functions.setdefault(function, len(self._functions) + 1)
        line = number, frame.line
        return self._locations.setdefault(line, len(self._locations) + 1)

    def data(self) -> bytes:
        types = [("cycles", "count"), ("time", "nanoseconds")]
        parts: list[tuple[int, int | bytes]] = [
            *((_SAMPLE_TYPE, self._pair(kind, unit)) for kind, unit in types),
            *((_SAMPLE, sample) for sample in self._samples),
            *(
                (_LOCATION, field(1, number) + field(4, field(1, function) + field(2, line)))
                for (function, line), number in self._locations.items()
            ),
            *(
                (
                    _FUNCTION,
                    field(1, number) + self._pair(name, name, 2) + field(4, self._string(file)),
                )
                for (name, file), number in self._functions.items()
            ),
            (_DEFAULT, self._string("cycles")),
        ]
        parts += [(_STRING, text.encode()) for text in self._strings]
        return gzip.compress(b"".join(field(number, part) for number, part in parts), mtime=0)

    def _pair(self, first: str, second: str, number: int = 1) -> bytes:
        return field(number, self._string(first)) + field(number + 1, self._string(second))


def pprof(named: Sequence[ConfigProfile]) -> bytes:
    """For ``go tool pprof`` and others: cycles and time by line, each with its cause as a label."""
    file = PprofFile()
    for stack in stacks(named):
        file.add(*stack)
    return file.data()
