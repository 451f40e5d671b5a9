"""Parallel coordinates: one line for each config with a time, across all that it is made of.

Drawn as ordinary lines: the trace that plotly.js has for it needs WebGL, which many remote desktops
lack.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import log10

from autotune.wording.units import micros
from autotune_service.pages.candidates import DEFAULT, WINNER, ShownTrial, escaped, fastest
from autotune_service.pages.plots import Figure, lines, ordered, plain_ticks, varying, vertical

MOST = 300
_MIB = 2**20
_BANDS = (
    ("fastest fifth", "@band0"),
    ("second fifth", "@band1"),
    ("third fifth", "@band2"),
    ("fourth fifth", "@band3"),
    ("slowest fifth", "@band4"),
)

Coordinate = Callable[[ShownTrial], float]
Axis = tuple[str, Coordinate, list[tuple[float, str]]]
"""Its name, where on it a candidate stands (0 to 1), and its ticks."""


def parallel(shown: Sequence[ShownTrial]) -> Figure | None:
    timed = _most_that_can_be_told_apart(fastest(shown))
    names = varying(timed)
    if len(timed) < 2 or not names:
        return None
    axes = [_of_config(name, timed) for name in names]
    axes += [
        _of_numbers("VMEM (MiB)", timed, lambda c: (c.used_bytes or 1) / _MIB),
        _of_numbers("time (µs)", timed, lambda c: c.time_us or 1.0),
    ]
    muted = {"color": "@muted", "width": 1}
    layout = {
        "xaxis": {
            "tickvals": list(range(len(axes))),
            "ticktext": [escaped(a[0]) for a in axes],
            "side": "top",
            "showgrid": False,
            "range": [-0.35, len(axes) - 0.65],
        },
        "yaxis": {"visible": False, "range": [-0.05, 1.05]},
        # Names stand slanted there: that of the last axis needs a seventh of the width beside it.
        "narrow": {"xaxis": {"range": [-0.9, 1.16 * len(axes) - 1], "tickangle": -40}},
        "shapes": [{**vertical(number), "line": muted} for number in range(len(axes))],
        "annotations": [tick for number, axis in enumerate(axes) for tick in _ticks(number, axis)],
        "height": 460,
        "legend": {"orientation": "h", "y": -0.04, "yanchor": "top", "x": 0},
    }
    return {"data": list(_traces(timed, axes)), "layout": layout}


def _most_that_can_be_told_apart(ranked: Sequence[ShownTrial]) -> list[ShownTrial]:
    """The fastest; the winner and the default are always there."""
    return [*ranked[:MOST], *(c for c in ranked[MOST:] if c.role)]


def _of_config(name: str, timed: Sequence[ShownTrial]) -> Axis:
    order = ordered(name, (c.values.get(name, "–") for c in timed), timed)
    last = max(1, len(order) - 1)
    places = {value: number / last for number, value in enumerate(order)}
    ticks = [(place, value) for value, place in places.items()]
    return name, lambda c: places[str(c.values.get(name, "–"))], ticks


def _of_numbers(name: str, timed: Sequence[ShownTrial], value_of: Coordinate) -> Axis:
    """Logarithmic."""
    values = list(map(value_of, timed))
    least, most = min(values), max(values)
    low, high = log10(least), log10(most)
    width = (high - low) or 1.0
    inside = [v for v in plain_ticks(least, most) if low <= log10(v) <= high]
    shown = inside if len(inside) > 1 else [least, most]
    ticks = [((log10(v) - low) / width, f"{float(f'{v:.4g}'):,.10g}") for v in shown]
    return name, lambda c: (log10(value_of(c)) - low) / width, ticks


def _traces(ranked: Sequence[ShownTrial], axes: Sequence[Axis]) -> Iterator[Figure]:
    """The slowest first, so that the fastest are drawn over them."""
    edges = [round(len(ranked) * part / len(_BANDS)) for part in range(len(_BANDS) + 1)]
    bands = list(zip(_BANDS, pairwise(edges), strict=True))
    for (name, colour), (first, end) in reversed(bands):
        if band := [c for c in ranked[first:end] if not c.role]:
            yield _trace(name, colour, 1.5, band, axes)
    for role, colour in ((DEFAULT, "@default"), (WINNER, "@best")):
        if marked := [c for c in ranked if c.role == role]:
            yield _trace(f"{role}, {micros(marked[0].time_us)}", colour, 4, marked, axes)


def _trace(
    name: str, colour: str, width: float, shown: Sequence[ShownTrial], axes: Sequence[Axis]
) -> Figure:
    """A line for each trial; None ends it."""
    end, count = [None], len(axes)
    texts = [f"trial {c.id}, {micros(c.time_us)}, estimated" for c in shown]
    return lines(
        name,
        [x for _ in shown for x in (*range(count), None)],
        [y for c in shown for y in (*(round(place(c), 4) for _, place, _ in axes), None)],
        mode="lines+markers",
        text=[part for text in texts for part in [text] * count + end],
        customdata=[link for c in shown for link in [c.link] * count + end],
        hovertemplate="%{text}<extra></extra>",
        line={"color": colour, "width": width},
        marker={"color": colour, "size": 5},
    )


def _ticks(number: int, axis: Axis) -> Iterator[Figure]:
    for place, text in axis[2]:
        yield {
            "x": number,
            "y": place,
            "text": escaped(text),
            "showarrow": False,
            "xanchor": "right",
            "xshift": -6,
            "bgcolor": "@veil",
            "font": {"size": 12},
        }
