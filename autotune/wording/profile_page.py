"""Profiles as HTML without a script, a server or another host: beside each line of the source
stands when it keeps the core busy in one grid step. For a file, a notebook and the dashboard.

And in formats of other tools: stacks of a flame graph, pprof, and traces of Perfetto.
"""

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import PurePath
from typing import NamedTuple

from autotune.domain.explanation import OperationTime
from autotune.domain.profile import Cause, NamedPart, Profile, ProfileRow, SourceLine
from autotune.domain.protobuf import field, packed
from autotune.domain.visible import visible
from autotune.estimating.simulator.drawing.picture import (
    BYTES,
    LINE,
    SHARE,
    STEPS,
    XLA,
    ConfigProfile,
    Picture,
    TraceSlice,
    Track,
    label,
    trace_json,
)
from autotune.wording.profile import HEADS, CallTable, TableLine, around_lines, tables
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


_WIDTH, _HEIGHT = 1000, 16  # of a strip, in its own units
_MOST_ALIKE = 4  # tracks of DMAs of one kind, and of units
_STYLE = "profile.css"


class _Step(NamedTuple):
    """What a picture shows of one grid step. ``begin_us`` and ``us``: when, and how long."""

    name: str
    begin_us: float
    us: float
    tracks: Sequence[Track]

    def of(self, row: ProfileRow) -> Iterable[TraceSlice]:
        name = label(row.frames[-1]) if row.frames else str(row.part)
        return next((track.slices for track in self.tracks if track.name == name), ())


def page(title: str, named: Sequence[ConfigProfile]) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{_text(title)}</title></head>"
        f"<body>{fragment(named, title)}</body></html>\n"
    )


def fragment(named: Sequence[ConfigProfile], title: str = "") -> str:
    head = f"<h1>{_text(title)}</h1>" * bool(title)
    parts = "".join(_call(named, table) for table in tables(named))
    around = "".join(f"<p>{_text(line)}</p>" for c in named for line in around_lines(c.around))
    style = files("autotune.wording").joinpath(_STYLE).read_text(encoding="utf-8")
    return f'<div class="autotune-profile"><style>{style}</style>{head}{parts}{around}</div>'


def _call(named: Sequence[ConfigProfile], table: CallTable) -> str:
    calls = [named[config].calls[n] for config, n in table.calls]
    pictures = [named[config].pictures[n:][:1] for config, n in table.calls]
    steps = [_step(picture) for shown in pictures for picture in shown]
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in table.lines.heads)
    if steps:
        strip_head = " and ".join(f"{step.name}: {micros(step.us)}" for step in steps)
        head += f'<th scope="col" class="strip">{_text(strip_head)}</th>'
    rows = "".join(_rows(calls, table, steps))
    said = [*table.notes, *(note for shown in pictures for each in shown for note in each.notes)]
    places = sorted({row.frames[-1].file for call in calls for row in call.folded() if row.frames})
    below = [*(f"source: {file}" for file in places), *said, "Simulated, not measured."]
    return (
        "".join(f"<h2>{_text(title)}</h2>" for title in table.titles)
        + _legend(calls)
        + '<div class="wide" tabindex="0" role="region" aria-label="cycles by line"><table><thead>'
        + f'<tr><th scope="col">line</th><th scope="col" class="source">source</th>{head}</tr>'
        + f"</thead><tbody>{rows}</tbody></table></div>"
        + "".join(f"<p>{_text(line)}</p>" for line in below)
    )


def _legend(calls: Sequence[Profile]) -> str:
    there = {cause for call in calls for row in call.rows for cause, _ in row.cycles}
    words = (
        f'<span><i class="{_class(cause)}"></i>'
        f"{' = '.join(dict.fromkeys([HEADS[cause], cause.value]))}</span>"
        for cause in Cause
        if cause in there
    )
    return f"<p>{''.join(words)}</p>"


def _rows(calls: Sequence[Profile], table: CallTable, steps: Sequence[_Step]) -> Iterator[str]:
    """What units and DMAs do, then the lines; those of one call with what stands around them."""
    blank = f'<td colspan="{len(table.lines.heads)}"></td>'
    for which, step in zip((", first", ", other") if steps[1:] else ("",), steps, strict=False):
        drawn = Counter[str]()
        for track in step.tracks:
            strip, kind = _strip([(track.slices, step)], steps), track.name.rstrip(" 0123456789")
            is_line = track.line is not None or track.name in list(NamedPart)
            if not is_line and kind != STEPS and "<rect" in strip and drawn[kind] < _MOST_ALIKE:
                drawn[kind] += 1
                yield _row("", _text(track.name + which), blank + strip, "quiet")
    for number, text, line in _with_context(calls, table.lines.lines):
        if line is None:
            yield _row(
                number, _text(text), blank + '<td class="strip"></td>' * bool(steps), "quiet"
            )
            continue
        cells = "".join(f"<td>{_text(cell)}</td>" for cell in line.cells)
        strip = _strip([(step.of(line.row), step) for step in steps], steps) if steps else ""
        yield _row(number, _folding(text, line.below), cells + strip)


def _with_context(
    calls: Sequence[Profile], lines: Sequence[TableLine]
) -> Iterator[tuple[str, str, TableLine | None]]:
    """The number and the text of each line; None: it has no cycles."""
    call, *others = calls
    texts = {} if others else dict(call.source)
    by_number = {
        line.row.frames[-1].line: line
        for line in lines
        if texts and line.row.frames and line.row.frames[-1].file == call.file
    }
    for number in sorted({*texts, *by_number}):
        line = by_number.get(number)
        yield str(number), texts.get(number) or (line.source if line else ""), line
    for line in lines:
        if line not in by_number.values():
            yield line.number, line.source, line


def _row(number: str, source: str, cells: str, kind: str = "") -> str:
    head = f'<th scope="row">{number}</th>' if number else "<td></td>"
    return f'<tr class="{kind}">{head}<td class="source">{source}</td>{cells}</tr>'


def _folding(text: str, below: Sequence[TableLine]) -> str:
    """A line, which opens to what it calls in other files."""
    if not below:
        return _text(text)
    inner = "".join(
        f"<p>{_text(f'{line.cells[0]} {line.cells[1]} {line.number} {line.source}')}</p>"
        for line in below
    )
    return f"<details><summary>{_text(text)}</summary>{inner}</details>"


def _strip(shown: Sequence[tuple[Iterable[TraceSlice], _Step]], steps: Sequence[_Step]) -> str:
    """A cell with a strip for each step, all on one scale of time."""
    whole = max(step.us for step in steps) or 1.0
    strips = []
    for slices, step in shown:
        rects = "".join(_rect(each, step, _WIDTH / whole) for each in slices)
        strips.append(
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none">{rects}</svg>'
        )
    return f'<td class="strip">{"".join(strips)}</td>'


def _rect(piece: TraceSlice, step: _Step, scale: float) -> str:
    """As high as the share of the time that it has; empty outside of the step."""
    begin = max(piece.begin_us - step.begin_us, 0.0)
    end = min(piece.end_us - step.begin_us, step.us)
    if end <= begin:
        return ""
    height = max(2.0, _HEIGHT * piece.details.get(SHARE, 1.0))
    return (
        f'<rect x="{begin * scale:.1f}" y="{_HEIGHT - height:.1f}" height="{height:.1f}" '
        f'width="{(end - begin) * scale:.1f}" class="{_class(piece.name)}">'
        f"<title>{_hint(piece, begin, end)}</title></rect>"
    )


def _hint(piece: TraceSlice, begin: float, end: float) -> str:
    """What a slice is, from when to when, and its operations."""
    words = [f"{piece.name}, {begin:.2f} to {end:.2f} µs"]
    for name, value in piece.details.items():
        if isinstance(value, dict):
            value = ", ".join(f"{opcode} ×{times}" for opcode, times in value.items())
        if value:
            words.append(f"{name}: {f'{value:.0%}' if name == SHARE else value}")
    return "\n".join(map(_text, words))


def _step(picture: Picture) -> _Step:
    """The step that is drawn by line."""
    slices = next(track.slices for track in picture.tracks if track.name == STEPS)
    step = next(each for each in slices if each.name == picture.step)
    return _Step(step.name, step.begin_us, step.end_us - step.begin_us, picture.tracks)


def _class(name: str) -> str:
    """Of the style sheet, which has the colours."""
    return _text(name.replace(" ", "-"))


def _text(text: str) -> str:
    return escape(visible(text))
