"""Profiles by line of source as tables: for a terminal here, for pages in ``profile_page``."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import PurePath
from typing import NamedTuple

from rich import box
from rich.table import Table

from autotune.compiling.protocol import Profiled
from autotune.domain.errors import AutotuneError
from autotune.domain.explanation import OperationTime
from autotune.domain.key import ChipInfo
from autotune.domain.outcome import Estimate, Failure
from autotune.domain.profile import Cause, Profile, ProfileNote, ProfileRow
from autotune.domain.visible import Shown
from autotune.estimating.simulator.drawing.picture import ConfigProfile
from autotune.wording.outcome import reason_of
from autotune.wording.output import echo
from autotune.wording.screen import screen
from autotune.wording.units import micros

_SAME_SHARE = 0.002  # of a time: what rounding may change
_SHOWN_SHARE = 0.02  # of the time: causes with less have no column of their own
_LEAST_SOURCE, _GAP = 20, 2  # characters
HEADS = {
    Cause.VECTOR: "vector",
    Cause.MATRIX: "matrix",
    Cause.LANE: "lanes",
    Cause.MEMORY: "ld/st",
    Cause.SPILL: "spills",
    Cause.EMPTY: "empty",
    Cause.SCALAR: "scalar",
    Cause.STEPS: "steps",
    Cause.MATRIX_STALL: "~matrix",
    Cause.LANE_STALL: "~lanes",
    Cause.HBM: "~HBM",
    Cause.LATENCY: "~latency",
    Cause.LINKS: "~devices",
}
NOTES = {ProfileNote.NO_LINES: "this libtpu names no lines of source: what has a name is named"}


class TableLine(NamedTuple):
    """A row of a table: what it says in numbers, and of which line. ``below``: lines of other files
    that it calls, which are ``inner``."""

    cells: list[str]
    row: ProfileRow
    below: "list[TableLine]"
    inner: bool = False

    @property
    def number(self) -> str:
        return str(self.row.frames[-1].line) if self.row.frames else ""

    @property
    def source(self) -> str:
        if not self.row.frames:
            return str(self.row.part)
        line = self.row.frames[-1]
        return f"{PurePath(line.file).name}: {line.text}" if self.inner else line.text


class LineTable(NamedTuple):
    """``heads``: of the numbers; then come the number of the line and its text."""

    heads: list[str]
    lines: list[TableLine]


def config_profile(name: str, answer: Profiled | Failure, chip: ChipInfo) -> ConfigProfile:
    """Raises ``AutotuneError`` with the reason where there is none."""
    from autotune.searching.profiles import profile_of  # numpy, which a service has not

    if not isinstance(answer, Profiled) or answer.refusal:
        reason = answer.refusal if isinstance(answer, Profiled) else reason_of(answer)
        raise AutotuneError(f"{name} has no profile: {reason}")
    return profile_of(name, answer, chip)


def estimate_change(trial: int, estimate: Estimate | None, config: ConfigProfile) -> str:
    """A stored estimate stays what it was when the simulator gets better; empty where both are the
    same."""
    if estimate is None or len(config.calls) != 1:
        return ""
    then, now = estimate.kernel_us, config.calls[0].us
    if abs(now - then) <= _SAME_SHARE * then:
        return ""
    return (
        f"trial {trial}: the kernel was estimated at {micros(then)}, the simulator that made this "
        f"profile says {micros(now)}"
    )


def total(call: Profile) -> str:
    return f"{micros(call.us)}, {call.cycles:,} cycles of a core, {call.on_lines:.0%} on a line"


def by_source(call: Profile) -> LineTable:
    """In the order of the source, each with the lines of other files that it calls; what has no
    line comes last."""
    rows = call.folded()
    sums = {cause: sum(dict(row.cycles).get(cause, 0) for row in rows) for cause in Cause}
    causes = [cause for cause in Cause if sums[cause] > _SHOWN_SHARE * call.cycles]

    def line(
        row: ProfileRow, below: Iterable[ProfileRow] = (), *, inner: bool = False
    ) -> TableLine:
        by_cause = dict(row.cycles)
        cycles = [_short(n) for n in (row.total, *(by_cause.get(cause, 0) for cause in causes))]
        runs = _short(row.runs if row.frames else 0)
        cells = [f"{row.total / call.cycles:.1%}", *cycles, runs, row.unit]
        return TableLine(cells, row, [line(each, inner=True) for each in below], inner)

    ordered = sorted(rows, key=lambda row: (not row.frames, row.frames or -row.total))
    table = [line(row, call.called_from(row)) for row in ordered]
    return LineTable(
        ["share", "cycles", *(HEADS[cause] for cause in causes), "runs", "busy"], table
    )


def by_difference(call: Profile, other: Profile) -> LineTable:
    """Microseconds, as two configs may differ in all else; what differs the most comes first."""
    sides = [{(row.frames, row.part): row for row in each.folded()} for each in (call, other)]
    table = []
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        pair = [side.get(key) for side in sides]
        first, second = (row.total / call.clock_hz * 1e6 if row else 0.0 for row in pair)
        units = [row.unit if row else "" for row in pair]
        cells = [f"{first:,.2f}", f"{second:,.2f}", f"{second - first:+,.2f}", *units]
        table.append((abs(second - first), TableLine(cells, next(filter(None, pair)), [])))
    ordered = [line for _, line in sorted(table, key=lambda pair: -pair[0])]
    return LineTable(["first µs", "other µs", "difference", "busy", "busy"], ordered)


class CallTable(NamedTuple):
    """A table for one call, or of two configs for the call in both."""

    titles: list[str]
    calls: list[tuple[int, int]]
    """Each by the number of its config, and its own."""
    lines: LineTable
    notes: list[str]


def tables(named: Sequence[ConfigProfile]) -> Iterator[CallTable]:
    """Of two configs one table for both, with what differs the most first."""
    pairs = len(named) == 2
    for first, config in enumerate(named[:1] if pairs else named):
        for number, call in enumerate(config.calls):
            both = pairs and len(named[1].calls) > number
            places = [(first, number), *([(1, number)] if both else [])]
            calls = [named[place].calls[n] for place, n in places]
            titles = [f"{call.kernel}, {config.name}: {total(call)}"]
            titles += [f"against {named[1].name}: {total(each)}" for each in calls[1:]]
            lines = by_difference(*calls) if both else by_source(call)
            notes = dict.fromkeys(NOTES[each.note] for each in calls if each.note)
            yield CallTable(titles, places, lines, list(notes))


def print_profiles(named: Sequence[ConfigProfile], *, unfold: bool = False) -> None:
    for titles, places, (heads, lines), notes in tables(named):
        echo("")
        for title in titles:
            echo(title)
        shown = [each for line in lines for each in (line, *(line.below if unfold else ()))]
        _print(
            heads, [([*line.cells, line.number], "└ " * line.inner + line.source) for line in shown]
        )
        rows = named[places[0][0]].calls[places[0][1]].folded()
        for file in sorted({row.frames[-1].file for row in rows if row.frames}):
            echo(f"source: {file}")
        for note in notes:
            echo(note)
    for config in named:
        for sentence in around_lines(config.around):
            echo(sentence)


def profiles_text(named: Sequence[ConfigProfile], *, unfold: bool = False) -> str:
    with redirect_stdout(StringIO()) as printed:
        print_profiles(named, unfold=unfold)
    return printed.getvalue()


class Profiles(Shown, list[ConfigProfile]):
    """Of several configs, as a table; in a notebook as a page."""

    def __str__(self) -> str:
        return profiles_text(self)

    def _repr_html_(self) -> str:
        from autotune.wording.profile_page import fragment

        return fragment(self)


def around_lines(operations: Iterable[tuple[OperationTime, str]]) -> Iterator[str]:
    """XLA's operations around the kernel, each with its line."""
    for operation, line in operations:
        place = f", {PurePath(line).name}" if line else ""
        yield f"around the kernel, XLA: {operation.name} {micros(operation.time_us)}{place}"


def _print(heads: Sequence[str], rows: Sequence[tuple[list[str], str]]) -> None:
    """The source has the room that the numbers leave; no number is cut on any screen."""
    console, table = screen(), Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    heads = [*heads, "line"]
    for head in heads:
        table.add_column(head, justify="left" if head == "busy" else "right", no_wrap=True)
    table.add_column("source", no_wrap=True)
    columns = zip(heads, *(cells for cells, _ in rows), strict=True)
    numbers = sum(max(map(len, column)) + _GAP for column in columns) + 4
    console.width = max(console.width, numbers + _LEAST_SOURCE)
    room = console.width - numbers
    for cells, source in rows:
        table.add_row(*cells, source if len(source) <= room else f"{source[: room - 1]}…")
    console.print(table)


def _short(cycles: float) -> str:
    """With three digits: 12.3k; empty for none."""
    for unit in ("", "k", "M", "G"):
        if round(cycles) < 1000:
            return f"{cycles:.3g}{unit}" if cycles else ""
        cycles /= 1000
    return f"{cycles:,.0f}T"
