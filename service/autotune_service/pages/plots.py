"""Figures for plotly.js as plain data. ``@name`` stands for a colour of the theme, which the page
puts in; every axis has its unit."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import log10
from typing import Any

from autotune.domain.browsing import Improvement
from autotune.wording.config import VMEM_LIMIT, limit_sizes
from autotune.wording.units import micros
from autotune_service.pages.candidates import (
    DEFAULT,
    ESTIMATED,
    GROUPS,
    LEAST_US,
    WINNER,
    ShownTrial,
)

Figure = dict[str, Any]
_MIB = 2**20


def time_axis(title: str, times: Sequence[float]) -> dict[str, Any]:
    """Logarithmic where the times differ much, with plain numbers; without numbers for no times."""
    if not times:
        return {"title": {"text": title}, "range": [0, 1], "showticklabels": False}
    wide = max(times) > 4 * min(times)
    if wide:
        return {"title": {"text": title}, "type": "log", **log_ticks(min(times), max(times))}
    return {"title": {"text": title}, "rangemode": "tozero"}


def log_ticks(low: float, high: float) -> dict[str, Any]:
    ticks = plain_ticks(low * 0.5, high * 2)
    return {"tickvals": ticks, "ticktext": [f"{tick:,.10g}" for tick in ticks]}


def plain_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten, or 1 only where these are many."""
    powers = range(int(log10(low)) - 2, int(log10(high)) + 2)
    ones = [10.0**power for power in powers if low <= 10.0**power <= high]
    ticks = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    kept = [tick for tick in ticks if low <= tick <= high]
    return ones if len(kept) > 9 else kept


def over_trials(
    found: Sequence[ShownTrial], steps: Sequence[Improvement], xla: Sequence[float]
) -> Figure:
    """Every trial and the best so far, by number."""
    best = [(step.number, step.time_us) for step in steps if step.time_us >= LEAST_US]
    end = max([c.number for c in found] + [step.number for step in steps], default=0)
    return _progress(found, best, end, [c.number for c in found], "trial within the search", xla)


def over_time(
    found: Sequence[ShownTrial], steps: Sequence[Improvement], began: datetime, xla: Sequence[float]
) -> Figure:
    """The same by the time at which a trial was finished."""
    passed = [(c.at - began).total_seconds() for c in found]
    best = [
        ((step.at - began).total_seconds(), step.time_us)
        for step in steps
        if step.time_us >= LEAST_US
    ]
    end = max(passed + [at for at, _ in best], default=0.0)
    unit, per = ("min", 60.0) if end > 300 else ("s", 1.0)
    best = [(at / per, time_us) for at, time_us in best]
    title = f"time since the first trial ({unit})"
    return _progress(found, best, end / per, [at / per for at in passed], title, xla)


def _progress(
    found: Sequence[ShownTrial],
    best: Sequence[tuple[float, float]],
    end: float,
    where: Sequence[float],
    title: str,
    xla: Sequence[float],
) -> Figure:
    timed = [us for _, us in best] + [c.time_us for c in found if c.time_us]
    traces = [*_dots(found, where), _best_line(best, end)]
    default = next((c.time_us for c in found if c.number == 0 and c.time_us), None)
    lines = [_level("default", default, "@default", "dash")] if default else []
    names = ("plain XLA ≥", "XLA's own estimate")  # a lower bound is all that is certain
    lines += [
        _level(name, us, "@xla", dash)
        for name, us, dash in zip(names, xla, ("dot", "longdashdot"), strict=False)
        if us
    ]
    for line in lines:
        line["x"] = [0, max(end, 1)]
        timed.append(line["y"][0])
    layout = {
        "xaxis": {"title": {"text": title}},
        "yaxis": time_axis("estimated time (µs)", timed),
        "height": 440,
    }
    return {"data": [*traces, *lines], "layout": layout}


def _dots(found: Sequence[ShownTrial], where: Sequence[float]) -> Iterable[Figure]:
    """Trials without a time stand on the upper edge."""
    for group, (colour, sign, _) in GROUPS.items():
        mine = [(x, c) for x, c in zip(where, found, strict=True) if c.group == group]
        if not mine:
            continue
        timed = group == ESTIMATED
        shown = [c for _, c in mine]
        size, opacity = (8, 0.6) if timed else (10, 1.0)
        name = f"{group} ({len(mine)})"
        yield {
            **_markers(name, shown, color=colour, symbol=sign, size=size, opacity=opacity),
            "x": [x for x, _ in mine],
            "y": [c.time_us if timed else 1 for c in shown],
            **({} if timed else {"yaxis": "y2"}),
        }


def _best_line(best: Sequence[tuple[float, float]], end: float) -> Figure:
    last = [(max(end, best[-1][0]), best[-1][1])] if best else []
    points = [*best, *last]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "best so far",
        "x": [x for x, _ in points],
        "y": [us for _, us in points],
        "line": {"shape": "hv", "color": "@best", "width": 3},
        "hoverinfo": "skip",  # its corners are trials, which say more
    }


def _level(name: str, us: float, colour: str, dash: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{name} {micros(us)}",
        "y": [us, us],
        "line": {"color": colour, "dash": dash, "width": 2},
        "hovertemplate": f"{name} {micros(us)}<extra></extra>",
    }


def hovers(found: Iterable[ShownTrial]) -> dict[str, Any]:
    """The page that a click opens; what a point says stands once for all plots, by this page."""
    return {
        "customdata": [c.link for c in found],
        "hovertemplate": "%{text}<extra></extra>",
    }


def by_role(found: Sequence[ShownTrial]) -> Iterable[tuple[Figure, list[ShownTrial]]]:
    """Estimated candidates, the two that matter apart: each with its dots, but for their places."""
    timed = [c for c in found if c.group == ESTIMATED]
    for role, name, colour, sign, size in (
        ("", "candidate", "@good", "circle", 8),
        (DEFAULT, "default", "@default", "square", 13),
        (WINNER, "winner", "@best", "star", 16),
    ):
        if mine := [c for c in timed if c.role == role]:
            yield _markers(name, mine, color=colour, symbol=sign, size=size), mine


def _markers(name: str, found: Sequence[ShownTrial], **marker: Any) -> Figure:
    dots = {"type": "scatter", "mode": "markers", "name": name, "marker": marker}
    return {**dots, **hovers(found)}


def vmem(found: Sequence[ShownTrial]) -> Figure | None:
    """VMEM used against time, and the limits; what did not fit stands beyond them."""
    known = [c for c in found if c.used_bytes]
    if not known:
        return None
    traces = [
        {**dots, "x": _used_mib(mine), "y": [c.time_us for c in mine]}
        for dots, mine in by_role(known)
    ]
    traces += _beyond_limits([c for c in known if c.time_us is None])
    limits = sorted({c.allowed_bytes for c in known if c.allowed_bytes})
    shapes = [_limit_line(limit) for limit in limits]
    notes = [_limit_note(limit) for limit in limits]
    times = [c.time_us for c in known if c.time_us]
    widest = max([c.used_bytes or 0 for c in known] + limits) / _MIB
    layout = {
        "xaxis": {"title": {"text": "VMEM used (MiB)"}, "range": [-widest * 0.03, widest * 1.08]},
        "yaxis": time_axis("estimated time (µs)", times),
        "shapes": shapes,
        "annotations": notes,
    }
    return {"data": traces, "layout": layout}


def _beyond_limits(over: Sequence[ShownTrial]) -> Iterator[Figure]:
    """Of each group of trials without a time, dots on an axis of their own."""
    for group in dict.fromkeys(c.group for c in over):
        mine = [c for c in over if c.group == group]
        colour, sign, _ = GROUPS[group]
        dots = _markers(group, mine, color=colour, symbol=sign, size=10)
        yield {**dots, "yaxis": "y2", "x": _used_mib(mine), "y": [1 for _ in mine]}


def _used_mib(found: Sequence[ShownTrial]) -> list[float]:
    return [(c.used_bytes or 0) / _MIB for c in found]


def _limit_line(limit: int) -> Figure:
    return {
        "type": "line",
        "x0": limit / _MIB,
        "x1": limit / _MIB,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": "@vmem", "width": 2, "dash": "dash"},
    }


def _limit_note(limit: int) -> Figure:
    return {
        "x": limit / _MIB,
        "y": 0.97,
        "yref": "paper",
        "text": f"limit {limit / _MIB:g} MiB",
        "showarrow": False,
        "textangle": -90,
        "xanchor": "right",
        "yanchor": "top",
        "font": {"color": "@vmem", "size": 12},
    }


def ordered(
    name: str, values: Iterable[str | int | bool], found: Sequence[ShownTrial]
) -> list[str]:
    """The values of a part of the config, each once, as text: numbers by size, then words; VMEM
    limits by size."""
    seen = list(values)
    if name == VMEM_LIMIT:
        return _limits(list(map(str, seen)), limit_sizes(c.config for c in found))
    numbers = sorted({v for v in seen if type(v) is int})
    words = sorted({str(v) for v in seen if type(v) is not int})
    return list(dict.fromkeys([*map(str, numbers), *words]))


def _limits(texts: Sequence[str], sizes: Mapping[str, int]) -> list[str]:
    """One that no trial had stands behind the one before it: the rules tell theirs in order."""
    last, places = 0, dict[str, tuple[int, int]]()
    for number, text in enumerate(texts):
        last = sizes.get(text, last)
        places.setdefault(text, (last, number))
    return sorted(places, key=lambda text: places[text])


def varying(found: Sequence[ShownTrial]) -> list[str]:
    """What of the config is not the same for all."""
    names = dict.fromkeys(name for c in found for name in c.values)
    return [name for name in names if len({str(c.values.get(name)) for c in found}) > 1]
