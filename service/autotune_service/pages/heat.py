"""A heat map of time over two parts of the config. What has no time says why."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

from autotune.domain.refusals import Refusals, Refused
from autotune.wording.units import micros
from autotune_service.pages.axes import values_of
from autotune_service.pages.candidates import (
    DEFAULT,
    ESTIMATED,
    GROUPS,
    WINNER,
    ShownTrial,
    escaped,
    group_of,
    wrapped,
)
from autotune_service.pages.plots import Figure

_SIGNS = {
    "out of VMEM": "VMEM",
    "illegal": "illegal",
    "failed": "failed",
    "wrong result": "wrong",
    "no time": "no time",
}
_GROUPS = list(_SIGNS)
_ROLES = {WINNER: "★", DEFAULT: "■"}
_MOST_TEXTS = 150  # cells with a text in them: of more they overlap
_MOST_TICKS = 40
SCALE = [[0, "#fde725"], [0.2, "#bddf26"], [0.4, "#7ad151"], [0.6, "#44bf70"]]
SCALE += [[0.8, "#22a884"], [1, "#21918c"]]
"""The light half of Viridis, the fastest first: on each of its colours dark words can be read."""
ON_SCALE = "#111111"
_SLOW = 2.0  # times the best: from here on one colour
_SPREAD = 1.1  # at least: what differs by less than estimates can tell looks alike
_ONLY = "the only value"
_REFUSED_TOO = "not legal, too large for VMEM, or not reached by the search"
_ALLOWED = (
    "the rules allow something here: the search has not<br>reached it, or has the same program"
)
_NOT_DRAWN = "or not among the trials that are drawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """The trials with its two values, or why there can be none; ``untried`` says what is known of a
    cell without either, ``sampled``: the rules were asked about some configs only."""

    tried: Sequence[ShownTrial]
    refused: Refused | None
    sampled: bool
    untried: str


HeatCells = Sequence[Sequence[HeatCell]]


def heat_map(
    found: Sequence[ShownTrial],
    x: str,
    y: str | None,
    refusals: Refusals | None = None,
    *,
    all_drawn: bool = True,
) -> Figure | None:
    """The best of each cell: the other parts of the config may differ."""
    columns = values_of(found, x, refusals)
    if not columns:
        return None
    rows = [_ONLY] if y is None else values_of(found, y, refusals)
    grid = _grid(found, (x, y), (columns, rows), refusals, all_drawn=all_drawn)
    names = {"x": list(map(escaped, columns)), "y": list(map(escaped, rows))}
    layout = {
        "xaxis": _axis(x, columns, -90),
        "yaxis": _axis(y or "", rows, 0),
        "height": max(320, min(700, 34 * len(rows) + 150)),
        "margin": {"l": 10 + _width(rows), "b": 10 + _width(columns), "r": 10, "t": 10},
    }
    failures, times = _failures(grid, names), _times(grid, names)
    if len(rows) * len(columns) > _MOST_TEXTS:
        # Each text is an element that a browser places again at every zoom, and with gaps plotly.js
        # draws and encodes a picture as large as the plot: without, one of a pixel for each cell.
        return {"data": [failures, times, _marks(grid, names)], "layout": layout}
    failures |= _written([[_SIGNS.get(_why_not(cell) or "", "") for cell in row] for row in grid])
    times |= _written([[_text(cell) for cell in row] for row in grid])
    return {"data": [failures, times], "layout": layout}


def _written(texts: Sequence[Sequence[str]]) -> Figure:
    """Cells with a text each, and room between them."""
    return {"text": texts, "texttemplate": "%{text}", "xgap": 2, "ygap": 2}


def _axis(name: str, values: Sequence[str], angle: int) -> Figure:
    """Of many values a zoom draws everything once, and some labels, none of which it measures."""
    many = {"automargin": False, "nticks": _MOST_TICKS // 2, "tickangle": angle}
    return {
        "title": {"text": escaped(name)},
        "type": "category",
        "range": [-0.5, len(values) - 0.5],
        **(many if len(values) > _MOST_TICKS else {}),
    }


def _width(values: Sequence[str]) -> int:
    """Pixels of the longest label, about, where the browser is not to find the margin itself."""
    return 0 if len(values) <= _MOST_TICKS else 40 + 7 * min(30, max(map(len, values)))


def _grid(
    found: Sequence[ShownTrial],
    axes: tuple[str, str | None],
    values: tuple[Sequence[str], Sequence[str]],
    refusals: Refusals | None,
    *,
    all_drawn: bool,
) -> HeatCells:
    """Row by row."""
    (x, y), (columns, rows) = axes, values
    tried: dict[tuple[str, str], list[ShownTrial]] = {}
    for c in found:
        row = str(c.values.get(y, "")) if y else _ONLY
        tried.setdefault((str(c.values.get(x, "")), row), []).append(c)
    known = refusals or Refusals(values={})
    refused = known.of(x, y)
    judged = refusals is not None and not known.is_left_out(x, y)
    untried = (_ALLOWED if judged else _REFUSED_TOO) + ("" if all_drawn else f"<br>{_NOT_DRAWN}")

    unknown = HeatCell(tried=(), refused=None, sampled=known.sampled, untried=untried)

    def cell(column: str, row: str) -> HeatCell:
        mine = tried.get((column, row), ())
        why = refused.get((column, row if y else column))
        if not mine and why is None:  # most cells of a large map
            return unknown
        return HeatCell(tried=mine, refused=why, sampled=known.sampled, untried=untried)

    return [[cell(column, row) for column in columns] for row in rows]


def _best(cell: HeatCell) -> ShownTrial | None:
    if not cell.tried:  # most cells of a large map
        return None
    timed = [c for c in cell.tried if c.group == ESTIMATED]
    return min(timed, key=lambda c: c.time_us or 0.0, default=None)


def _times(grid: HeatCells, names: dict[str, Any]) -> Figure:
    best = [[_best(cell) for cell in row] for row in grid]
    known = [c.time_us for row in best for c in row if c and c.time_us]
    return {
        "type": "heatmap",
        **names,
        "z": [[log10(c.time_us) if c and c.time_us else None for c in row] for row in best],
        "colorscale": SCALE,
        "textfont": {"color": ON_SCALE},
        "hoverongaps": False,
        **_scale(known),
        "customdata": [[f"/trials/{c.id}" if c else "" for c in row] for row in best],
        "hovertext": [
            [_hover(cell) if c else "" for cell, c in zip(*row, strict=True)]
            for row in zip(grid, best, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _text(cell: HeatCell) -> str:
    best = _best(cell)
    signs = [_ROLES[role] for role in _roles(cell)]
    return " ".join([*signs, *([micros(best.time_us)] if best else [])])


def _roles(cell: HeatCell) -> list[str]:
    """What is served may be the default itself."""
    if not cell.tried:  # most cells of a large map
        return []
    timed = [c for c in cell.tried if c.group == ESTIMATED]
    there = {c.role for c in timed} | {DEFAULT for c in timed if c.number == 0}
    return [role for role in _ROLES if role in there] if there else []


def _marks(grid: HeatCells, names: dict[str, Any]) -> Figure:
    """What is served and the default, where there is no room for other texts."""
    marked = [
        (names["x"][column], names["y"][row], role)
        for row, cells in enumerate(grid)
        for column, cell in enumerate(cells)
        for role in reversed(_roles(cell))  # the star above
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [x for x, _, _ in marked],
        "y": [y for _, y, _ in marked],
        "marker": {
            "symbol": ["star" if role == WINNER else "square" for *_, role in marked],
            "size": 11,
            "color": "@text",
            "line": {"color": "@card", "width": 1.5},
        },
        "hoverinfo": "skip",
    }


def _scale(times: Sequence[float]) -> Figure:
    """Colours tell the best apart: what takes many times as long is all of one colour."""
    if not times:
        return {"showscale": False}
    low = min(times)
    high = max(min(max(times), low * _SLOW), low * _SPREAD)
    steps = [low + (high - low) * part / 4 for part in range(5)]
    texts = [f"{step:,.4g}" for step in steps]
    if max(times) > high:
        texts[-1] = f"≥ {texts[-1]}"
    return {
        "zmin": log10(low),
        "zmax": log10(high),
        "colorbar": {
            "title": {"text": "estimated time (µs)", "side": "right"},
            "thickness": 14,
            "tickvals": list(map(log10, steps)),
            "ticktext": texts,
        },
    }


def _failures(grid: HeatCells, names: dict[str, Any]) -> Figure:
    """Under the times: cells where nothing has one, each kind in its colour, with a word."""
    worst = [[_why_not(cell) for cell in row] for row in grid]
    steps = len(_GROUPS)
    scale = [
        [edge / steps, GROUPS[group][0]]
        for number, group in enumerate(_GROUPS)
        for edge in (number, number + 1)
    ]
    return {
        "type": "heatmap",
        **names,
        "zmin": -0.5,
        "zmax": steps - 0.5,
        "colorscale": scale,
        "z": [[_GROUPS.index(g) if g else None for g in row] for row in worst],
        "textfont": {"color": "@on-failure"},
        "showscale": False,
        "hoverongaps": True,
        "customdata": [[_link(cell) for cell in row] for row in grid],
        "hovertext": [["" if _best(cell) else _hover(cell) for cell in row] for row in grid],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _link(cell: HeatCell) -> str:
    return f"/trials/{cell.tried[0].id}" if cell.tried else ""


def _why_not(cell: HeatCell) -> str | None:
    """What a trial has found counts before what the rules say of the cell."""
    if not cell.tried:
        return group_of(cell.refused.kind) if cell.refused else None
    if _best(cell) is not None:
        return None
    return max(cell.tried, key=lambda c: _GROUPS.index(c.group)).group


def _hover(cell: HeatCell) -> str:
    if not cell.tried:
        refused = cell.refused and _of_refused(cell.refused, sampled=cell.sampled)
        return refused or f"<b>not tried</b><br>{cell.untried}"
    best = _best(cell)
    failed = [c for c in cell.tried if c.group != ESTIMATED]
    shown = [best] if best else failed[:2]
    more = len(cell.tried) - len(shown)
    lines = [c.hover for c in shown]
    if more:
        wrong = f", {len(failed)} without a time" if best and failed else ""
        lines.append(f"{more} more here{wrong}")
    return "<br>".join(lines)


def _of_refused(refused: Refused, *, sampled: bool) -> str:
    some = "that were looked at " if sampled else ""
    all_of_it = "the config" if refused.points == 1 else f"each of the {refused.points:,} configs"
    return "<br>".join(
        [
            f"<b>{escaped(refused.kind)}</b>, not compiled",
            f"{all_of_it} {some}here is refused; the closest one:",
            *wrapped(refused.reason),
        ]
    )
