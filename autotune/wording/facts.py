"""What is known of one estimate: as plain data, and as facts in words, all numbers with units."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from autotune.domain.comparison import FasterTrial, PartEffect
from autotune.domain.explanation import GROWING, WORTH_SHARE, Explanation, TimePart
from autotune.domain.operation import OperationTime
from autotune.domain.outcome import CallTime, Estimate
from autotune.wording.time_parts import PART_WORDS
from autotune.wording.units import error_bar, mebibytes, micros, part_us, ratio, size

Fact = tuple[str, Callable[[Estimate, Explanation], str]]


def explanation_data(e: Estimate, why: Explanation) -> dict[str, Any]:
    """Everything that the tables say. Times in microseconds, ``*_share`` and ``error`` of 1."""
    return {
        "time_us": e.time_us,
        "error": e.error,
        "resolution": e.resolution,
        "limited_by": e.limiting_part,
        "model": e.model,
        "parts": [{"name": name, "us": us, "share": us / e.time_us} for name, us in why.parts_us],
        "roofline_us": why.roofline_us,
        "least_us": why.least_us or None,
        "saving_us": why.saving_us,
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
        "calls": [asdict(call) for call in e.calls],
        "kernel_us": e.kernel_us,
        "xla_us": e.xla_us,
        "operations": [asdict(operation) for operation in e.operations],
        "notes": list(e.notes),
    }


def parts_line(e: Estimate) -> str:
    """What the time is made of, the largest part first."""
    why = e.explanation
    known = sorted(why.parts_us, key=lambda part: -part[1]) if why else ()
    return ", ".join(f"{name} {part_us(us)}" for name, us in known if us)


FACTS: tuple[Fact, ...] = (
    ("time", lambda e, _: f"{micros(e.time_us)} {error_bar(e.error)}, {e.model}"),
    ("limited by", lambda e, why: _limit(e, why)),
    ("calls", lambda e, _: "; ".join(map(_call, e.calls))),
    ("kernel and XLA", lambda e, _: _shared(e)),
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


def _shared(e: Estimate) -> str:
    """What of the time is the kernels', and what XLA does around them."""
    if not e.xla_us:
        return ""
    operations = "; ".join(map(_operation, e.operations))
    text = f"{part_us(e.kernel_us)} in the kernel, {part_us(e.xla_us)} of XLA around it"
    return f"{text}: {operations}" if operations else text


def _operation(operation: OperationTime) -> str:
    times = f"{operation.runs} times " if operation.runs != 1 else ""
    moved = f", {size(operation.hbm_bytes)} of HBM" if operation.hbm_bytes else ""
    return f"{times}{operation.name} ({operation.opcode}) {part_us(operation.time_us)}{moved}"


def _call(call: CallTime) -> str:
    """One of several pallas_calls."""
    times = f"{call.runs} times " if call.runs != 1 else ""
    return (
        f"{times}{call.name} {part_us(call.time_us)}, limited by {call.limited_by}, "
        f"{mebibytes(call.vmem_used_bytes)} of VMEM"
    )


def _limit(e: Estimate, why: Explanation) -> str:
    part = why.limiting_part
    return f"{part}, {part_us(why.part_us(part))} of {micros(e.time_us)}: {what_to_change(e, why)}"


def what_to_change(e: Estimate, why: Explanation, larger: Mapping[str, int] | None = None) -> str:
    """In a config, to make the limiting part smaller. ``larger``: the axes whose blocks can be
    larger, and how large; None where that is not known."""
    if why.saving_us < WORTH_SHARE * e.time_us:
        return "no other config can save much of it"
    change = PART_WORDS[TimePart(why.limiting_part)].change
    if why.limiting_part in GROWING and larger is not None:
        if not larger:
            return "no block can be larger"
        sizes = ", ".join(f"{name} up to {size}" for name, size in larger.items())
        change = change.replace("larger blocks", f"larger blocks ({sizes})", 1)
    return f"{change} (at most {part_us(why.saving_us)} less)"


def faster_text(faster: FasterTrial, base: Estimate, name: str) -> str:
    """Which changes of the config saved most among the trials, and the VMEM that they cost."""
    e = faster.trial.estimate
    assert e is not None
    changes = ", ".join(f"{part}={value}" for part, value in faster.changed.items())
    vmem = f"VMEM {mebibytes(base.vmem_used_bytes)} → {mebibytes(e.vmem_used_bytes)}"
    return f"{changes} saves {part_us(faster.saved_us)} ({name}, {vmem})"


def effect_text(effect: PartEffect) -> str:
    """What one part of a config does to the time, when nothing else changes."""
    if not effect.ratios:
        return "not known: no trial changes it alone"
    if effect.largest == 1:
        return "no difference that can be told"
    value, slowest = effect.ratios[0]
    if slowest < 1 + effect.resolution:
        value, slowest = effect.ratios[-1]
    return f"{value} takes {slowest:.2f} times as long"


def _roofline(e: Estimate, why: Explanation) -> str:
    times = _over(e.time_us, why.roofline_us)
    return f"{part_us(why.roofline_us)}, the time is {times:.2f}× that" if times else "–"


def _matrix(e: Estimate, why: Explanation) -> str:
    if not e.flops:
        return "not used"
    rate = e.flops / e.time_us / 1e6
    return f"busy {why.mxu_us / e.time_us:.1%} of the time, {rate:,.1f} TFLOP/s"


def _traffic(e: Estimate, why: Explanation) -> str:
    if e.hbm_bytes < why.least_hbm_bytes:  # it needs a part of its arguments alone
        return f"{size(e.hbm_bytes)} of {size(why.least_hbm_bytes)} of arguments and results"
    least = f"least possible {size(why.least_hbm_bytes)}"
    return f"{size(e.hbm_bytes)}, {ratio(e.hbm_bytes, why.least_hbm_bytes)} the {least}"


def _rate(e: Estimate, why: Explanation) -> str:
    return f"{e.hbm_bytes / e.time_us / 1e3:,.0f} GB/s, mean burst {size(why.burst_bytes)}"


def _steps(e: Estimate, why: Explanation) -> str:
    """Of one core."""
    return f"{why.steps:,}, {part_us(e.time_us / why.steps)} each" if why.steps > 1 else "1"


def _allowed(e: Estimate) -> str:
    share = f", {e.vmem_used_bytes / e.vmem_allowed_bytes:.0%}" if e.vmem_allowed_bytes else ""
    return mebibytes(e.vmem_allowed_bytes) + share


def _over(value: float, least: float) -> float | None:
    return value / least if least else None
