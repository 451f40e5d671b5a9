"""The parts and facts of one or two estimates, as tables and as JSON."""

from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.table import Table

from autotune.cli.screen import screen
from autotune.cli.units import error_bar, mebibytes, micros, ratio, size
from autotune.explanation import PARTS, Explanation
from autotune.outcome import Estimate

_BAR = 24
_LOG_WIDTH = 100

Explained = tuple[Estimate, Explanation]
Row = tuple[str, Callable[[Estimate, Explanation], str]]


def explanation_data(e: Estimate, why: Explanation) -> dict[str, Any]:
    """Everything that the tables say. Times in microseconds, ``*_share`` and ``error`` of 1."""
    return {
        "time_us": e.time_us,
        "error": e.error,
        "resolution": e.resolution,
        "limited_by": e.limited_by,
        "model": e.model,
        "parts": [{"name": name, "us": us, "share": us / e.time_us} for name, us in why.parts_us],
        "roofline_us": why.roofline_us,
        "times_roofline": _over(e.time_us, why.roofline_us),
        "mxu_us": why.mxu_us,
        "mxu_share": why.mxu_us / e.time_us,
        "tflops_per_s": e.flops / e.time_us / 1e6,
        "hbm_bytes": e.hbm_bytes,
        "least_hbm_bytes": why.least_hbm_bytes,
        "times_least_hbm_bytes": _over(e.hbm_bytes, why.least_hbm_bytes),
        "hbm_gb_per_s": e.hbm_bytes / e.time_us / 1e3,
        "burst_bytes": why.burst_bytes,
        "steps": why.steps,
        "dma_count": why.dma_count,
        "vmem": [{"name": name, "bytes": used} for name, used in why.vmem],
        "vmem_used_bytes": e.vmem_used_bytes,
        "vmem_allowed_bytes": e.vmem_allowed_bytes,
        "spill_bundles": why.spill_bundles,
        "notes": list(e.notes),
    }


def print_breakdown(
    titles: Sequence[str], found: Sequence[Explained], first_rows: Sequence[tuple[str, ...]] = ()
) -> None:
    """Where the time goes, then the facts; a column for each estimate, and the difference of the
    second from the first. ``first_rows`` open the facts."""
    console = screen(_LOG_WIDTH)
    console.print(_parts_table(titles, found))
    console.print(_facts_table(titles, found, first_rows))


def _parts_table(titles: Sequence[str], found: Sequence[Explained]) -> Table:
    table = _table("where the time goes")
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
        table.add_column("share", justify="right", no_wrap=True)
    compared = len(found) > 1
    table.add_column(
        "difference" if compared else "", justify="right" if compared else "left", no_wrap=True
    )
    for name in PARTS:
        if any(why.part_us(name) for _, why in found):
            table.add_row(name, *_time_cells(found, [why.part_us(name) for _, why in found]))
    table.add_section()
    table.add_row("total", *_time_cells(found, [e.time_us for e, _ in found], bar=False))
    return table


def _time_cells(found: Sequence[Explained], us: Sequence[float], *, bar: bool = True) -> list[str]:
    shares = [part / e.time_us for part, (e, _) in zip(us, found, strict=True)]
    cells = [c for n, s in zip(us, shares, strict=True) for c in (_part(n), f"{s:.1%}")]
    if len(found) > 1:
        change = us[1] - us[0]
        sign = "+" if change > 0 else "−" if change < 0 else ""
        return [*cells, sign + _part(abs(change))]
    return [*cells, "█" * round(shares[0] * _BAR) if bar else ""]


def _facts_table(
    titles: Sequence[str], found: Sequence[Explained], first_rows: Sequence[tuple[str, ...]]
) -> Table:
    table = _table("", header=len(found) > 1)
    for title in titles:
        table.add_column(title if len(found) > 1 else "", overflow="fold")
    for row in first_rows:
        table.add_row(*row)
    for name, cell in _FACTS:
        cells = [cell(e, why) for e, why in found]
        if any(cells):
            table.add_row(name, *cells)
    return table


def _table(title: str, *, header: bool = True) -> Table:
    style = box.SIMPLE_HEAD if header else None
    table = Table(box=style, padding=(0, 1, 0, 0 if header else 1), show_header=header)
    table.add_column(title, no_wrap=True)
    return table


_FACTS: tuple[Row, ...] = (
    ("time", lambda e, _: f"{micros(e.time_us)} {error_bar(e.error)}, {e.model}"),
    ("limited by", lambda e, _: e.limited_by),
    ("roofline", lambda e, why: _roofline(e, why)),
    ("matrix units", lambda e, why: _matrix(e, why)),
    ("HBM traffic", lambda e, why: _traffic(e, why)),
    ("HBM rate", lambda e, why: _rate(e, why)),
    ("grid steps", lambda e, why: _steps(e, why)),
    ("DMAs", lambda _, why: f"{why.dma_count:,}"),
    ("VMEM used", lambda e, _: f"{mebibytes(e.vmem_used_bytes)} of {_allowed(e)}"),
    ("VMEM by operand", lambda _, why: ", ".join(f"{n} {size(used)}" for n, used in why.vmem)),
    ("spills", lambda _, why: f"{why.spill_bundles:,} bundles" if why.spill_bundles else "none"),
    ("notes", lambda e, _: "; ".join(e.notes)),
)


def _roofline(e: Estimate, why: Explanation) -> str:
    times = _over(e.time_us, why.roofline_us)
    return f"{_part(why.roofline_us)}, the time is {times:.2f}× that" if times else "–"


def _matrix(e: Estimate, why: Explanation) -> str:
    if not e.flops:
        return "not used"
    rate = e.flops / e.time_us / 1e6
    return f"busy {why.mxu_us / e.time_us:.1%} of the time, {rate:,.1f} TFLOP/s"


def _traffic(e: Estimate, why: Explanation) -> str:
    least = f"least possible {size(why.least_hbm_bytes)}"
    return f"{size(e.hbm_bytes)}, {ratio(e.hbm_bytes, why.least_hbm_bytes)} the {least}"


def _rate(e: Estimate, why: Explanation) -> str:
    return f"{e.hbm_bytes / e.time_us / 1e3:,.0f} GB/s, mean burst {size(why.burst_bytes)}"


def _steps(e: Estimate, why: Explanation) -> str:
    """Of one core."""
    return f"{why.steps:,}, {_part(e.time_us / why.steps)} each" if why.steps > 1 else "1"


def _allowed(e: Estimate) -> str:
    share = f", {e.vmem_used_bytes / e.vmem_allowed_bytes:.0%}" if e.vmem_allowed_bytes else ""
    return mebibytes(e.vmem_allowed_bytes) + share


def _part(us: float) -> str:
    """Microseconds, with a digit more below one."""
    return f"{us:.2f} µs" if 0 < us < 0.95 else micros(us)


def _over(value: float, least: float) -> float | None:
    return value / least if least else None
