"""The page of a kernel: its problems, what is published for them, and how fast that is."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.domain.browsing import SearchedKey
from autotune.domain.record import Record
from autotune.wording.units import ratio
from autotune_service.pages.candidates import escaped
from autotune_service.pages.plots import Figure
from autotune_service.pages.speed import Speed, speed
from autotune_service.snapshot_cache import IndexedSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRow:
    """A problem with what is published for it in the snapshot in force."""

    searched: SearchedKey
    record: Record | None
    speed: Speed | None


def rows(found: Sequence[SearchedKey], snapshot: IndexedSnapshot) -> list[ProblemRow]:
    return [_row(one, snapshot.index.exact(one.key)) for one in found]


def _row(searched: SearchedKey, record: Record | None) -> ProblemRow:
    return ProblemRow(searched=searched, record=record, speed=speed(record) if record else None)


def speedups(found: Sequence[ProblemRow]) -> Figure | None:
    """A line for each record: over the default, and over plain XLA, on both sides of 1."""
    shown = [(row.searched, row.speed) for row in found if row.speed]
    if not shown:
        return None
    names = [f"{escaped(_short(one))} · {one.id}" for one, _ in shown]
    series: tuple[tuple[str, str, str, list[float | None]], ...] = (
        ("over the default", "@best", "circle", [s.over_default for _, s in shown]),
        (
            "over plain XLA, by its own estimate",
            "@xla",
            "diamond",
            [s.over_xla_own for _, s in shown],
        ),
        ("over plain XLA, at least", "@xla", "line-ns-open", [s.over_xla_least for _, s in shown]),
    )
    if any(s.measured_us for _, s in shown):
        series += (
            (
                "over the default, measured",
                "@best",
                "circle-open",
                [s.measured_over_default for _, s in shown],
            ),
            (
                "over plain XLA, measured",
                "@xla",
                "diamond-open",
                [s.measured_over_xla for _, s in shown],
            ),
        )
    known = [value for *_, values in series for value in values if value]
    if not known:
        return None
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "y": names,
            "x": values,
            "marker": {"color": colour, "symbol": sign, "size": 12, "line": {"width": 2}},
            "customdata": [f"/keys/{one.id}" for one, _ in shown],
            "text": [f"{name}: {ratio(v, 1)}{_kind(name)}" for v in values],
            "hovertemplate": "%{y}<br>%{text}<extra></extra>",
        }
        for name, colour, sign, values in series
    ]
    one = {
        "type": "line",
        "x0": 1,
        "x1": 1,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": "@default", "width": 2},
    }
    ticks = [
        v
        for v in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
        if min(known) / 2 <= v <= max(known) * 2
    ]
    layout = {
        "xaxis": {
            "title": {"text": "times as fast (below 1: slower)"},
            "type": "log",
            "tickvals": ticks,
            "ticktext": [f"{tick:g}×" for tick in ticks],
        },
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
        "narrow": {
            "yaxis": {
                "tickvals": names,
                "ticktext": [f"{one.id}" for one, _ in shown],
                "title": {"text": "problem"},
            }
        },
        "shapes": [one],
        "height": 240 + 24 * len(shown),
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": -60 / (100 + 24 * len(shown)),
            "yanchor": "top",
            "bgcolor": "rgba(0,0,0,0)",
        },
    }
    return {"data": data, "layout": layout}


def _kind(name: str) -> str:
    return "" if name.endswith("measured") else ", estimated"


def _short(one: SearchedKey) -> str:
    key = one.key
    dims = "×".join(str(size) for _, size in key.problem.dims)
    options = "".join(f" {value}" for _, value in key.problem.options if isinstance(value, str))
    return f"{dims} {key.problem.dtype}{options} on {key.chip}"
