"""The parts and facts of one or two estimates, as tables."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from autotune.domain.explanation import PARTS, Explanation
from autotune.domain.outcome import Estimate
from autotune.domain.problem import Config, parts_of
from autotune.wording.facts import FACTS
from autotune.wording.screen import screen
from autotune.wording.units import part_us

_BAR = 24

Explained = tuple[Estimate, Explanation]


def print_breakdown(
    titles: Sequence[str],
    estimates: Sequence[Explained],
    first_rows: Sequence[tuple[str, ...]] = (),
) -> None:
    """Where the time goes, then the facts; a column for each estimate, and of two the difference of
    the second from the first. ``first_rows`` open the facts."""
    console = screen()
    console.print(_parts_table(titles, estimates))
    console.print(_facts_table(titles, estimates, first_rows))


def differing_rows(configs: Sequence[Config]) -> list[tuple[str, ...]]:
    """Where configs differ, value beside value."""
    parts = [parts_of(config) for config in configs]
    names = dict.fromkeys(name for part in parts for name in part)
    rows = [(name, *(str(part.get(name, "–")) for part in parts)) for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]


def _parts_table(titles: Sequence[str], estimates: Sequence[Explained]) -> Table:
    table = _table("where the time goes")
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
        table.add_column("share", justify="right", no_wrap=True)
    if len(estimates) == 1:
        table.add_column("", no_wrap=True)
    elif len(estimates) == 2:
        table.add_column("difference", justify="right", no_wrap=True)
    for name in PARTS:
        parts_us = [why.part_us(name) for _, why in estimates]
        if any(parts_us):
            table.add_row(name, *_time_cells(estimates, parts_us))
    table.add_section()
    table.add_row("total", *_time_cells(estimates, [e.time_us for e, _ in estimates], bar=False))
    return table


def _time_cells(
    estimates: Sequence[Explained], us: Sequence[float], *, bar: bool = True
) -> list[str]:
    shares = [part / e.time_us for part, (e, _) in zip(us, estimates, strict=True)]
    cells = [c for n, s in zip(us, shares, strict=True) for c in (part_us(n), f"{s:.1%}")]
    if len(estimates) > 2:
        return cells
    if len(estimates) == 2:
        change = us[1] - us[0]
        sign = "+" if change > 0 else "−" if change < 0 else ""
        return [*cells, sign + part_us(abs(change))]
    return [*cells, "█" * round(shares[0] * _BAR) if bar else ""]


def _facts_table(
    titles: Sequence[str], estimates: Sequence[Explained], first_rows: Sequence[tuple[str, ...]]
) -> Table:
    table = _table("", header=len(estimates) > 1)
    for title in titles:
        table.add_column(title if len(estimates) > 1 else "", overflow="fold")
    for row in first_rows:
        table.add_row(*row)
    for name, cell in FACTS:
        cells = [cell(e, why) for e, why in estimates]
        if any(cells):
            table.add_row(name, *cells)
    return table


def _table(title: str, *, header: bool = True) -> Table:
    style = box.SIMPLE_HEAD if header else None
    table = Table(box=style, padding=(0, 1, 0, 0 if header else 1), show_header=header)
    table.add_column(title, no_wrap=True)
    return table
