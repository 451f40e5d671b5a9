"""The roofline with every candidate on it. The roofs come from the estimates themselves: the bytes
over the time that HBM needs for them, and the operations over the least time where these decide."""

from collections.abc import Sequence
from math import isfinite, log10

from autotune.domain.outcome import Estimate
from autotune_service.pages.candidates import ShownTrial
from autotune_service.pages.plots import Figure, by_role, log_ticks

_MIB = 2**20
_DECIDES = 1.01  # the least time is that of operations when it is above that of bytes by this much


def bandwidth(found: Sequence[Estimate]) -> float | None:
    """Bytes per microsecond."""
    rates = [e.hbm_bytes / e.memory_us for e in found if e.memory_us and e.hbm_bytes]
    return max(filter(isfinite, rates), default=None)


def peak(found: Sequence[Estimate]) -> float | None:
    """Operations per microsecond; None where bytes decide for every candidate."""
    rates = [
        e.flops / e.explanation.roofline_us
        for e in found
        if e.explanation and e.flops and e.explanation.roofline_us > e.memory_us * _DECIDES
    ]
    return max(filter(isfinite, rates), default=None)


def roofline(found: Sequence[ShownTrial]) -> Figure | None:
    """Rate over intensity; for a kernel without matrix work, HBM rate over bytes moved."""
    timed = [c for c in found if c.estimate and c.estimate.hbm_bytes]
    estimates = [c.estimate for c in timed if c.estimate]
    roof = bandwidth(estimates)
    if not timed or roof is None:
        return None
    return _by_intensity(timed, roof) if any(e.flops for e in estimates) else _by_bytes(timed, roof)


def _by_intensity(found: Sequence[ShownTrial], roof: float) -> Figure | None:
    mixed = [c for c in found if c.estimate and c.estimate.flops]
    estimates = [c.estimate for c in mixed if c.estimate]
    places = [e.flops / e.hbm_bytes for e in estimates]
    top = peak(estimates)
    low, high = min(places) / 3, max(places) * 3
    if top is not None:
        high = max(high, top / roof * 3)
    bend = min(high, top / roof) if top else high
    x = [low, bend, high] if bend < high else [low, high]
    y = [min(roof * place, top or roof * place) / 1e6 for place in x]
    name = f"roof: HBM {roof / 1e3:,.0f} GB/s" + (f", {top / 1e6:,.0f} TFLOP/s" if top else "")
    traces = [_roof(name, x, y)]
    for dots, mine in by_role(mixed):
        own = [c.estimate for c in mine if c.estimate]
        across = [e.flops / e.hbm_bytes for e in own]
        traces.append({**dots, "x": across, "y": [e.flops / e.time_us / 1e6 for e in own]})
    rates = [*y, *(e.flops / e.time_us / 1e6 for e in estimates)]
    layout = {
        "xaxis": {"title": {"text": "operations per byte of HBM traffic (FLOP/B)"}, **_log(x)},
        "yaxis": {
            "title": {"text": "estimated rate (TFLOP/s)"},
            "type": "log",
            **log_ticks(min(rates), max(rates)),
        },
    }
    return {"data": traces, "layout": layout}


def _by_bytes(found: Sequence[ShownTrial], roof: float) -> Figure:
    moved = [c.estimate.hbm_bytes / _MIB for c in found if c.estimate]
    x = [min(moved) * 0.8, max(moved) * 1.2]
    traces = [_roof(f"roof: HBM {roof / 1e3:,.0f} GB/s", x, [roof / 1e3] * 2)]
    for dots, mine in by_role(found):
        own = [c.estimate for c in mine if c.estimate]
        across = [e.hbm_bytes / _MIB for e in own]
        traces.append({**dots, "x": across, "y": [e.hbm_bytes / e.time_us / 1e3 for e in own]})
    layout = {
        "xaxis": {"title": {"text": "HBM traffic (MiB); no matrix work"}},
        "yaxis": {"title": {"text": "estimated rate (GB/s)"}, "rangemode": "tozero"},
    }
    return {"data": traces, "layout": layout}


def _roof(name: str, x: Sequence[float], y: Sequence[float]) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": {"color": "@default", "width": 3},
        "hovertemplate": "no candidate can be above<extra></extra>",
    }


def _log(x: Sequence[float]) -> Figure:
    return {"type": "log", "range": [log10(x[0]), log10(x[-1])], **log_ticks(x[0], x[-1])}
