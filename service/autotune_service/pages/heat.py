"""A heat map of time over two parts of the config. What has no time says why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

from autotune.wording.units import micros
from autotune_service.pages import candidates
from autotune_service.pages.filters import Query
from autotune_service.pages.plots import Figure, lines, ordered, plain_ticks, varying

_MOST_VALUES = 75  # of a part, drawn
_SIGNS = {
    "out of VMEM": "VMEM",
    "illegal": "illegal",
    "failed": "failed",
    "wrong result": "wrong",
    "no time": "no time",
}
_GROUPS = list(_SIGNS)
_ROLES = {candidates.WINNER: "★", candidates.DEFAULT: "■"}
_MOST_TEXTS = 150  # cells with a text in them: of more they overlap
_MOST_TICKS = 40
SCALE = [[0, "#fde725"], [0.2, "#bddf26"], [0.4, "#7ad151"], [0.6, "#44bf70"]]
SCALE += [[0.8, "#22a884"], [1, "#21918c"]]
"""The light half of Viridis, the fastest first: on each of its colours dark words can be read."""
ON_SCALE = "#111111"
_SLOW = 2.0  # times the best: from here on one colour
_SPREAD = 1.1  # at least: what differs by less than estimates can tell looks alike
_ONLY = "the only value"
_NOT_TRIED = "not legal, too large for VMEM, or not reached by the search"
_NOT_DRAWN = "or not among the trials that are drawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """``names``: what may be chosen. ``note``: what is not shown of the cells."""

    names: list[str]
    x: str | None
    y: str | None
    note: str


def axes(shown: Sequence[candidates.ShownTrial], query: Query) -> Axes:
    """Parts of the config with several values; all of them where none has."""
    names = _names(shown)
    x = query.choice("x", names) or (names[0] if names else None)
    rest = [name for name in names if name != x]
    y = query.choice("y", names)
    if y == x:
        y = None
    y = y or (rest[0] if rest else None)
    return Axes(names=names, x=x, y=y, note=_cut(shown, [name for name in (x, y) if name]))


def _names(shown: Sequence[candidates.ShownTrial]) -> list[str]:
    """Parts of the config with several values, else all."""
    several = varying(shown)
    known = dict.fromkeys(name for c in shown for name in c.values)
    return [name for name in known if name in several or not several]


def values_of(shown: Sequence[candidates.ShownTrial], name: str) -> list[str]:
    """In order; of very many those of the fastest trials first."""
    values = _all_values(shown, name)
    if len(values) <= _MOST_VALUES:
        return values
    by_time = sorted(shown, key=lambda c: (c.time_us is None, c.time_us))
    tried = dict.fromkeys(str(c.values[name]) for c in by_time if name in c.values)
    chosen = set(list(dict.fromkeys([*tried, *values]))[:_MOST_VALUES])
    return [value for value in values if value in chosen]


def _all_values(shown: Sequence[candidates.ShownTrial], name: str) -> list[str]:
    return ordered(name, [c.values[name] for c in shown if name in c.values], shown)


def _cut(shown: Sequence[candidates.ShownTrial], names: Sequence[str]) -> str:
    counts = {name: len(_all_values(shown, name)) for name in names}
    return " ".join(
        f"Of {count:,} values of {name} {_MOST_VALUES} are drawn, those of the fastest first."
        for name, count in counts.items()
        if count > _MOST_VALUES
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """The trials with its two values; ``untried`` says what is known of a cell without any."""

    tried: Sequence[candidates.ShownTrial] = ()
    untried: str = ""

    @property
    def best(self) -> candidates.ShownTrial | None:
        if not self.tried:  # most cells of a large map
            return None
        return next(iter(candidates.fastest(self.tried)), None)

    @property
    def roles(self) -> list[str]:
        """What is served may be the default itself."""
        timed = candidates.fastest(self.tried) if self.tried else ()
        there = {c.role for c in timed} | {candidates.DEFAULT for c in timed if c.trial.number == 0}
        return [role for role in _ROLES if role in there]

    @property
    def text(self) -> str:
        best = self.best
        signs = [_ROLES[role] for role in self.roles]
        return " ".join([*signs, *([micros(best.time_us)] if best else [])])

    @property
    def why_not(self) -> str | None:
        if not self.tried or self.best is not None:
            return None
        return max((c.group for c in self.tried), key=_GROUPS.index)

    @property
    def hover(self) -> str:
        if not self.tried:
            return f"<b>not tried</b><br>{self.untried}"
        best = self.best
        failed = [c for c in self.tried if c.group != candidates.ESTIMATED]
        shown = [best] if best else failed[:2]
        lines = [c.hover for c in shown]
        if more := len(self.tried) - len(shown):
            wrong = f", {len(failed)} without a time" if best and failed else ""
            lines.append(f"{more} more here{wrong}")
        return "<br>".join(lines)


HeatCells = Sequence[Sequence[HeatCell]]


def _each(grid: HeatCells, value: Callable[[HeatCell], Any]) -> list[list[Any]]:
    return [[value(cell) for cell in row] for row in grid]


def heat_map(
    shown: Sequence[candidates.ShownTrial],
    x: str,
    y: str | None,
    *,
    all_drawn: bool = True,
) -> Figure | None:
    """The best of each cell: the other parts of the config may differ."""
    columns = values_of(shown, x)
    if not columns:
        return None
    rows = [_ONLY] if y is None else values_of(shown, y)
    grid = _grid(shown, (x, y), (columns, rows), all_drawn=all_drawn)
    names = {"x": list(map(candidates.escaped, columns)), "y": list(map(candidates.escaped, rows))}
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
    failures |= _written(_each(grid, lambda cell: _SIGNS.get(cell.why_not or "", "")))
    times |= _written(_each(grid, lambda cell: cell.text))
    return {"data": [failures, times], "layout": layout}


def _written(texts: Sequence[Sequence[str]]) -> Figure:
    """Cells with a text each, and room between them."""
    return {"text": texts, "texttemplate": "%{text}", "xgap": 2, "ygap": 2}


def _axis(name: str, values: Sequence[str], angle: int) -> Figure:
    """Of many values a zoom draws everything once, and some labels, none of which it measures."""
    many = {"automargin": False, "nticks": _MOST_TICKS // 2, "tickangle": angle}
    return {
        "title": {"text": candidates.escaped(name)},
        "type": "category",
        "range": [-0.5, len(values) - 0.5],
        **(many if len(values) > _MOST_TICKS else {}),
    }


def _width(values: Sequence[str]) -> int:
    """Pixels of the longest label, about, where the browser is not to find the margin itself."""
    return 0 if len(values) <= _MOST_TICKS else 40 + 7 * min(30, max(map(len, values)))


def _grid(
    shown: Sequence[candidates.ShownTrial],
    axes: tuple[str, str | None],
    values: tuple[Sequence[str], Sequence[str]],
    *,
    all_drawn: bool,
) -> HeatCells:
    """Row by row."""
    (x, y), (columns, rows) = axes, values
    tried: dict[tuple[str, str], list[candidates.ShownTrial]] = {}
    for c in shown:
        row = str(c.values.get(y, "")) if y else _ONLY
        tried.setdefault((str(c.values.get(x, "")), row), []).append(c)
    cells = {place: HeatCell(tried=trials) for place, trials in tried.items()}
    untried = HeatCell(untried=_NOT_TRIED + ("" if all_drawn else f"<br>{_NOT_DRAWN}"))
    return [[cells.get((column, row), untried) for column in columns] for row in rows]


def _layer(names: dict[str, Any], **layer: Any) -> Figure:
    hover = {"hovertemplate": "%{hovertext}<extra></extra>"}
    return {"type": "heatmap", **names, **hover, **layer}


def _times(grid: HeatCells, names: dict[str, Any]) -> Figure:
    best = _each(grid, lambda cell: cell.best)
    known = [c.time_us for row in best for c in row if c and c.time_us]
    return _layer(
        names,
        z=[[log10(c.time_us) if c and c.time_us else None for c in row] for row in best],
        colorscale=SCALE,
        textfont={"color": ON_SCALE},
        hoverongaps=False,
        customdata=[[c.link if c else "" for c in row] for row in best],
        hovertext=_each(grid, lambda cell: cell.hover if cell.best else ""),
        **_scale(known),
    )


def _failures(grid: HeatCells, names: dict[str, Any]) -> Figure:
    """Under the times: cells where nothing has one, each kind in its colour, with a word."""
    steps = len(_GROUPS)
    return _layer(
        names,
        zmin=-0.5,
        zmax=steps - 0.5,
        colorscale=[
            [edge / steps, candidates.GROUPS[group][0]]
            for number, group in enumerate(_GROUPS)
            for edge in (number, number + 1)
        ],
        z=_each(grid, lambda cell: _GROUPS.index(cell.why_not) if cell.why_not else None),
        textfont={"color": "@on-failure"},
        showscale=False,
        hoverongaps=True,
        customdata=_each(grid, lambda cell: cell.tried[0].link if cell.tried else ""),
        hovertext=_each(grid, lambda cell: "" if cell.best else cell.hover),
    )


def _marks(grid: HeatCells, names: dict[str, Any]) -> Figure:
    """What is served and the default, where there is no room for other texts."""
    marked = [
        (names["x"][column], names["y"][row], role)
        for row, cells in enumerate(grid)
        for column, cell in enumerate(cells)
        for role in reversed(cell.roles)  # the star above
    ]
    marker = {
        "symbol": ["star" if role == candidates.WINNER else "square" for *_, role in marked],
        "size": 11,
        "color": "@text",
        "line": {"color": "@card", "width": 1.5},
    }
    x, y = [x for x, *_ in marked], [y for _, y, _ in marked]
    return lines("", x, y, mode="markers", marker=marker, hoverinfo="skip")


def _scale(times: Sequence[float]) -> Figure:
    """Colours tell the best apart: what takes many times as long is all of one colour."""
    if not times:
        return {"showscale": False}
    low = min(times)
    high = max(min(max(times), low * _SLOW), low * _SPREAD)
    inside = [tick for tick in plain_ticks(low, high) if low * 1.2 < tick < high / 1.2]
    steps = [low, *inside, high]
    texts = [f"{float(f'{step:.3g}'):,.10g}" for step in steps]
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
