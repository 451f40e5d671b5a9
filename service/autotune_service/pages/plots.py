"""Figures for plotly.js as plain data. ``@name`` stands for a colour of the theme, which the page
puts in; every axis has its unit."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite, log10
from typing import Any

from autotune.domain.browsing import Improvement
from autotune.domain.outcome import Estimate
from autotune.wording.outcome import BEFORE_GATE
from autotune.wording.units import micros
from autotune_service.pages import candidates

Figure = dict[str, Any]
Points = Sequence[tuple[float, float]]
_MIB = 2**20
_DECIDES = 1.01  # the least time is that of operations when it is above that of bytes by this much


def lines(name: str, x: Sequence[Any], y: Sequence[Any], **trace: Any) -> Figure:
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, **trace}


def axis(title: str, **layout: Any) -> Figure:
    return {"title": {"text": title}, **layout}


def described(figure: Figure) -> Figure:
    """With ``said``: what it shows, in words, for who does not see it."""
    x, y = (figure["layout"][name]["title"]["text"] for name in ("xaxis", "yaxis"))
    traces = "; ".join(map(_trace_in_words, figure["data"]))
    return {**figure, "said": f"{y} over {x}: {traces}"}


def _trace_in_words(trace: Figure) -> str:
    """A line from its first point to its last, dots from the lowest to the highest; a level has its
    time in its name."""
    name, values = str(trace["name"]), [value for value in trace["y"] if value is not None]
    is_line = "lines" in trace["mode"]
    if trace.get("yaxis") == "y2" or not values or (is_line and values[0] == values[-1]):
        return name
    ends = (values[0], values[-1]) if is_line else (min(values), max(values))
    return f"{name}, " + " to ".join(dict.fromkeys(f"{end:,.4g}" for end in ends))


def time_axis(times: Sequence[float]) -> Figure:
    """Logarithmic where the times differ much, with plain numbers; without numbers for no times."""
    title = "estimated time (µs)"
    if not times:
        return axis(title, range=[0, 1], showticklabels=False)
    if max(times) > 4 * min(times):
        return axis(title, type="log", **log_ticks(min(times), max(times)))
    return axis(title, rangemode="tozero")


def log_ticks(low: float, high: float) -> Figure:
    ticks = plain_ticks(low * 0.5, high * 2)
    return {"tickvals": ticks, "ticktext": [f"{tick:,.10g}" for tick in ticks]}


def plain_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten, or 1 only where these are many."""
    powers = range(int(log10(low)) - 2, int(log10(high)) + 2)
    ticks = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    inside = [tick for tick in ticks if low <= tick <= high]
    if len(inside) <= 9:
        return inside
    return [10.0**power for power in powers if low <= 10.0**power <= high]


def over_trials(
    shown: Sequence[candidates.ShownTrial], steps: Sequence[Improvement], xla: Sequence[float]
) -> Figure:
    """Every trial and the best so far, by number."""
    best = [(step.number, step.time_us) for step in steps if step.time_us >= candidates.LEAST_US]
    where = [c.trial.number for c in shown]
    end = max(where + [step.number for step in steps], default=0)
    whole = {"dtick": 1} if end < 9 else {}  # there is no half of a trial
    return _progress(shown, best, end, where, axis("trial within the search", **whole), xla)


def over_time(
    shown: Sequence[candidates.ShownTrial], steps: Sequence[Improvement], xla: Sequence[float]
) -> Figure:
    """The same by the time at which a trial was finished."""
    began = min(c.trial.created_at for c in shown)
    passed = [(c.trial.created_at - began).total_seconds() for c in shown]
    best = [
        ((step.at - began).total_seconds(), step.time_us)
        for step in steps
        if step.time_us >= candidates.LEAST_US
    ]
    end = max(passed + [at for at, _ in best], default=0.0)
    unit, per = ("min", 60.0) if end > 300 else ("s", 1.0)
    best = [(at / per, time_us) for at, time_us in best]
    across = axis(f"time since the first trial ({unit})")
    return _progress(shown, best, end / per, [at / per for at in passed], across, xla)


def _progress(
    shown: Sequence[candidates.ShownTrial],
    best: Points,
    end: float,
    where: Sequence[float],
    xaxis: Figure,
    xla: Sequence[float],
) -> Figure:
    default = next((c.time_us for c in shown if c.trial.number == 0 and c.time_us), None)
    levels = [("default", default, "@default", "dash")]
    names = ("plain XLA ≥", "XLA's own estimate")  # a lower bound is all that is certain
    dashes = ("dot", "longdashdot")
    for name, us, dash in zip(names, xla, dashes, strict=False):
        levels.append((name, us, "@xla", dash))
    across = [0, max(end, 1)]
    drawn = [_level(f"{name} {micros(us)}", across, us, c, d) for name, us, c, d in levels if us]
    times = [us for _, us in best] + [c.time_us for c in shown if c.time_us]
    times += [us for _, us, *_ in levels if us]
    layout = {"xaxis": xaxis, "yaxis": time_axis(times), "height": 440}
    return {"data": [*_dots(shown, where), _best_line(best, end), *drawn], "layout": layout}


def _dots(shown: Sequence[candidates.ShownTrial], where: Sequence[float]) -> Iterable[Figure]:
    """Trials without a time stand on the upper edge."""
    for group, (colour, symbol) in candidates.GROUPS.items():
        there = [(x, c) for x, c in zip(where, shown, strict=True) if c.group == group]
        if not there:
            continue
        timed = group == candidates.ESTIMATED
        size, opacity = (8, 0.6) if timed else (10, 1.0)
        marker = {"color": colour, "symbol": symbol, "size": size, "opacity": opacity}
        name = f"{group} ({len(there)})"
        yield {
            **_markers(name, [c for _, c in there], **marker),
            "x": [x for x, _ in there],
            "y": [c.time_us if timed else 1 for _, c in there],
            **({} if timed else {"yaxis": "y2"}),
        }


def _best_line(best: Points, end: float) -> Figure:
    """Steps, to the last trial. Its corners are trials, which say more."""
    points = [*best, (end, best[-1][1])] if best else []
    line = {"shape": "hv", "color": "@best", "width": 3}
    x, y = [x for x, _ in points], [us for _, us in points]
    return lines(f"best so far, {BEFORE_GATE}", x, y, line=line, hoverinfo="skip")


def _level(name: str, across: Sequence[float], us: float, colour: str, dash: str) -> Figure:
    line = {"color": colour, "dash": dash, "width": 2}
    return lines(name, across, [us, us], line=line, hovertemplate=f"{name}<extra></extra>")


def _markers(name: str, shown: Sequence[candidates.ShownTrial], **marker: Any) -> Figure:
    """Dots, but for their places. A click opens the page of the trial; what a point says stands
    once for all plots, by this page."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "marker": marker,
        "customdata": [c.link for c in shown],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _by_role(
    shown: Sequence[candidates.ShownTrial],
    x: Callable[[candidates.ShownTrial], float | None],
    y: Callable[[candidates.ShownTrial], float | None],
) -> Iterator[Figure]:
    """Estimated candidates, the two that matter apart."""
    for role, name, colour, symbol, size in (
        ("", "candidate", "@good", "circle", 8),
        (candidates.DEFAULT, "default", "@default", "square", 13),
        (candidates.WINNER, "winner", "@best", "star", 16),
    ):
        if there := [c for c in shown if c.role == role and c.group == candidates.ESTIMATED]:
            marks = _markers(name, there, color=colour, symbol=symbol, size=size)
            yield {**marks, "x": list(map(x, there)), "y": list(map(y, there))}


def vmem(shown: Sequence[candidates.ShownTrial]) -> Figure | None:
    """VMEM used against time, and the limits; what did not fit stands beyond them."""
    known = [c for c in shown if c.used_bytes]
    if not known:
        return None
    traces = [*_by_role(known, _used_mib, lambda c: c.time_us)]
    beyond = [c for c in known if c.time_us is None]
    traces += _dots(beyond, list(map(_used_mib, beyond)))
    limits = sorted({c.allowed_bytes / _MIB for c in known if c.allowed_bytes})
    times = [c.time_us for c in known if c.time_us]
    widest = max([*map(_used_mib, known), *limits])
    line = {"type": "line", "y0": 0, "y1": 1, "yref": "paper"}  # over the whole height
    line |= {"line": {"color": "@vmem", "width": 2, "dash": "dash"}}
    layout = {
        "xaxis": axis("VMEM used (MiB)", range=[-widest * 0.03, widest * 1.08]),
        "yaxis": time_axis(times),
        "shapes": [{**line, "x0": mib, "x1": mib} for mib in limits],
        "annotations": list(map(_limit_note, limits)),
    }
    return {"data": traces, "layout": layout}


def _used_mib(c: candidates.ShownTrial) -> float:
    return (c.used_bytes or 0) / _MIB


def _limit_note(limit_mib: float) -> Figure:
    return {
        "x": limit_mib,
        "y": 0.97,
        "yref": "paper",
        "text": f"limit {limit_mib:g} MiB",
        "showarrow": False,
        "textangle": -90,
        "xanchor": "right",
        "yanchor": "top",
        "font": {"color": "@vmem", "size": 12},
    }


def bandwidth(estimates: Sequence[Estimate]) -> float | None:
    """Bytes per microsecond."""
    rates = [e.hbm_bytes / e.memory_us for e in estimates if e.memory_us and e.hbm_bytes]
    return max(filter(isfinite, rates), default=None)


def peak(estimates: Sequence[Estimate]) -> float | None:
    """Operations per microsecond; None where bytes decide for every candidate."""
    rates = [
        e.flops / e.explanation.roofline_us
        for e in estimates
        if e.explanation and e.flops and e.explanation.roofline_us > e.memory_us * _DECIDES
    ]
    return max(filter(isfinite, rates), default=None)


def roofline(shown: Sequence[candidates.ShownTrial]) -> Figure | None:
    """Rate over intensity; for a kernel without matrix work, HBM rate over bytes moved. The roofs
    come from the estimates themselves: the bytes over the time that HBM needs for them, and the
    operations over the least time where these decide."""
    timed = [(c, c.estimate) for c in shown if c.estimate and c.estimate.hbm_bytes]
    roof = bandwidth([e for _, e in timed])
    if roof is None:
        return None
    mixed = [(c, e) for c, e in timed if e.flops]
    return _by_intensity(mixed, roof) if mixed else _by_bytes(timed, roof)


_Timed = Sequence[tuple[candidates.ShownTrial, Estimate]]


def _by_intensity(timed: _Timed, roof: float) -> Figure:
    of = {c.id: e for c, e in timed}
    places = [e.flops / e.hbm_bytes for e in of.values()]
    top = peak(list(of.values()))
    low, high = min(places) / 3, max(places) * 3
    if top is not None:
        high = max(high, top / roof * 3)
    bend = min(high, top / roof) if top else high
    x = [low, bend, high] if bend < high else [low, high]
    y = [min(roof * place, top or roof * place) / 1e6 for place in x]
    name = f"roof: HBM {roof / 1e3:,.0f} GB/s" + (f", {top / 1e6:,.0f} TFLOP/s" if top else "")
    marks = _by_role(
        [c for c, _ in timed],
        lambda c: of[c.id].flops / of[c.id].hbm_bytes,
        lambda c: of[c.id].flops / of[c.id].time_us / 1e6,
    )
    rates = [*y, *(e.flops / e.time_us / 1e6 for e in of.values())]
    ticks = log_ticks(min(rates), max(rates))
    across = {"type": "log", "range": [log10(low), log10(high)], **log_ticks(low, high)}
    layout = {
        "xaxis": axis("operations per byte of HBM traffic (FLOP/B)", **across),
        "yaxis": axis("estimated rate (TFLOP/s)", type="log", **ticks),
    }
    return {"data": [_roof(name, x, y), *marks], "layout": layout}


def _by_bytes(timed: _Timed, roof: float) -> Figure:
    of = {c.id: e for c, e in timed}
    moved = [e.hbm_bytes / _MIB for e in of.values()]
    x = [min(moved) * 0.8, max(moved) * 1.2]
    marks = _by_role(
        [c for c, _ in timed],
        lambda c: of[c.id].hbm_bytes / _MIB,
        lambda c: of[c.id].hbm_bytes / of[c.id].time_us / 1e3,
    )
    layout = {
        "xaxis": axis("HBM traffic (MiB); no matrix work"),
        "yaxis": axis("estimated rate (GB/s)", rangemode="tozero"),
    }
    name = f"roof: HBM {roof / 1e3:,.0f} GB/s"
    return {"data": [_roof(name, x, [roof / 1e3] * 2), *marks], "layout": layout}


def _roof(name: str, x: Sequence[float], y: Sequence[float]) -> Figure:
    line = {"color": "@default", "width": 3}
    return lines(name, x, y, line=line, hovertemplate="no candidate can be above<extra></extra>")


def varying(shown: Sequence[candidates.ShownTrial]) -> list[str]:
    """What of the config is not the same for all."""
    names = dict.fromkeys(name for c in shown for name in c.values)
    return [name for name in names if len({str(c.values.get(name)) for c in shown}) > 1]
