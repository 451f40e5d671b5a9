"""Profiles as HTML without a script, a server or another host: beside each line of the source
stands when it keeps the core busy in one grid step. For a file, a notebook and the dashboard."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple

from autotune.domain.profile import Cause, NamedPart, Profile, ProfileRow
from autotune.domain.visible import visible
from autotune.estimating.simulator.drawing.columns import label
from autotune.estimating.simulator.drawing.picture import (
    SHARE,
    STEPS,
    ConfigProfile,
    Picture,
    TraceSlice,
    Track,
)
from autotune.wording.profile import HEADS, CallTable, TableLine, around_lines, tables
from autotune.wording.units import micros

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
