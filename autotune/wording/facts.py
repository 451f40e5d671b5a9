"""What is known of one estimate: as plain data, and as facts in words, all numbers with units.

And why one candidate is faster than another, from the parts of both explanations.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from autotune.domain import explanation as parts
from autotune.domain.comparison import Comparison, FasterTrial, PartEffect
from autotune.domain.explanation import GROWING, WORTH_SHARE, Explanation, OperationTime, TimePart
from autotune.domain.outcome import CallTime, Estimate
from autotune.wording.publication import TIE_RULE
from autotune.wording.units import error_bar, mebibytes, micros, part_us, ratio, size


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWords:
    """``does``: what a candidate does with ``{}`` of it. ``change``: what makes it smaller in a
    config; empty where no config does."""

    meaning: str
    does: str
    change: str

    def __str__(self) -> str:
        return f"{self.meaning} To make it smaller: {self.change or 'no config does'}."


PART_WORDS: Mapping[TimePart, PartWords] = {
    TimePart.ISSUE: PartWords(
        meaning="The core issues vector and matrix operations.",
        does="needs {} to issue vector and matrix operations",
        change="larger blocks, so that sums are loaded and stored less often",
    ),
    TimePart.SCALAR: PartWords(
        meaning="The core issues scalar operations only: addresses, and starting DMAs.",
        does="needs {} for scalar work and DMA issue",
        change="larger blocks, so that there are fewer grid steps",
    ),
    TimePart.MATRIX: PartWords(
        meaning="The core waits for a matrix unit to take or give a product.",
        does="stalls {} for the matrix units",
        change="larger blocks, so that a product need not wait for the one before",
    ),
    TimePart.LANES: PartWords(
        meaning="The core waits for sums, shuffles and transposes across lanes.",
        does="stalls {} for cross-lane results",
        change="larger blocks, so that the kernel reduces less often",
    ),
    TimePart.HBM: PartWords(
        meaning="The core waits for the bytes that HBM delivers or takes.",
        does="waits {} for HBM",
        change="larger blocks, or a grid order in which blocks stay, for fewer or longer transfers",
    ),
    TimePart.LATENCY: PartWords(
        meaning="The core waits for a DMA to answer, however few its bytes are.",
        does="waits {} for DMA latency",
        change="larger blocks, so that fewer steps wait for a DMA to answer",
    ),
    TimePart.FILL: PartWords(
        meaning="The core waits for the first blocks, and for the last ones to be written.",
        does="waits {} for its first blocks",
        change="smaller blocks, so that the first ones are there sooner",
    ),
    TimePart.LINKS: PartWords(
        meaning="The core waits for what other devices send or say, and for the links to take it.",
        does="waits {} for other devices",
        change="",
    ),
    TimePart.XLA: PartWords(
        meaning="What XLA does around the kernel, such as padding, transposing and copying.",
        does="leaves {} to XLA around the kernel",
        change="a config around which XLA pads, transposes or copies less, if there is one",
    ),
}


_ENOUGH_SHARE = 0.75  # the parts named explain at least this share of what is gained
_MOST_REASONS = 3
_WORTH_SHARE = 0.1  # a part that got slower is named from this share of the difference on


def why(comparison: Comparison) -> str:
    c = comparison
    if not c.gained_us:
        return f"{_verdict(c)} The parts of one of them are not known."
    reasons = _reasons(c)
    if not reasons:
        return _verdict(c)
    opening = f"What differs most: {c.faster.name}" if c.tie else "It"
    text = f"{_verdict(c)} {opening} {_listed(reasons)}."
    loss = _loss(c)
    return text if loss is None else f"{text} Against that, it {_said(*loss, 'more')}."


def _verdict(c: Comparison) -> str:
    fast, slow = c.faster, c.slower
    if not c.tie:
        return (
            f"{fast.name[:1].upper()}{fast.name[1:]} is {c.times_as_fast:.2f} times as fast as "
            f"{slow.name}, by estimate."
        )
    if slow.estimate.time_us == fast.estimate.time_us:
        return f"A tie: {fast.name} and {slow.name} are estimated equally fast."
    return (
        f"A tie: {fast.name} is estimated {1 - 1 / c.times_as_fast:.1%} faster than {slow.name}, "
        f"and less than {c.margin:.1%} cannot be told apart."
    )


def _largest(c: Comparison) -> list[tuple[str, float]]:
    """The parts in which the faster gains most: as many as explain most of what it gains."""
    gains = sorted((g for g in c.gained_us if g[1] > 0), key=lambda g: -g[1])
    total, named = sum(us for _, us in gains), 0.0
    chosen: list[tuple[str, float]] = []
    for name, us in gains[:_MOST_REASONS]:
        if named >= _ENOUGH_SHARE * total:
            break
        chosen.append((name, us))
        named += us
    return chosen


def _reasons(c: Comparison) -> list[str]:
    """A clause for each, with what it comes from where that has not been said yet."""
    clauses, before = [], {""}
    for name, us in _largest(c):
        hints = (hint(c.faster.estimate, c.slower.estimate) for hint in _HINTS.get(name, ()))
        hint = next(filter(None, hints), "")
        clauses.append(_said(name, us, "less") + ("" if hint in before else f" ({hint})"))
        before.add(hint)
    return clauses


def _loss(c: Comparison) -> tuple[str, float] | None:
    """The part in which the faster loses most and how much, where that matters."""
    name, gained = min(c.gained_us, key=lambda g: g[1])
    difference = c.slower.estimate.time_us - c.faster.estimate.time_us
    return (name, -gained) if gained < 0 and -gained >= _WORTH_SHARE * difference else None


def _said(name: str, us: float, more_or_less: str) -> str:
    return PART_WORDS[TimePart(name)].does.format(f"{part_us(us)} {more_or_less}")


def _fewer_bytes(fast: Estimate, slow: Estimate) -> str:
    if fast.hbm_bytes >= slow.hbm_bytes:
        return ""
    return f"moves {fast.hbm_bytes / 2**20:,.2f} MiB instead of {slow.hbm_bytes / 2**20:,.2f} MiB"


def _longer_bursts(fast: Estimate, slow: Estimate) -> str:
    assert fast.explanation is not None
    assert slow.explanation is not None
    mean, other = fast.explanation.burst_bytes, slow.explanation.burst_bytes
    return f"mean burst of {mean:,} B instead of {other:,} B" if mean > other else ""


def _smaller_blocks(fast: Estimate, slow: Estimate) -> str:
    used, other = fast.vmem_used_bytes, slow.vmem_used_bytes
    return f"{mebibytes(used)} of VMEM instead of {mebibytes(other)}" if used < other else ""


def _counts(field: str, what: str, fast: Estimate, slow: Estimate) -> str:
    fewer, more = (getattr(e.explanation, field) for e in (fast, slow))
    return f"{fewer:,} instead of {more:,} {what}" if fewer < more else ""


_fewer_steps = partial(_counts, "steps", "grid steps")
_fewer_dmas = partial(_counts, "dma_count", "DMAs")

# What a smaller part comes from; the first that is so is named.
_HINTS: dict[str, tuple[Callable[[Estimate, Estimate], str], ...]] = {
    parts.ISSUE: (partial(_counts, "spill_bundles", "bundles with spills"),),
    parts.SCALAR: (_fewer_steps, _fewer_dmas),
    parts.HBM: (_fewer_bytes, _longer_bursts),
    parts.LATENCY: (_fewer_steps, _fewer_dmas),
    parts.FILL: (_smaller_blocks,),
}


def _listed(clauses: list[str]) -> str:
    return clauses[0] if len(clauses) == 1 else f"{', '.join(clauses[:-1])} and {clauses[-1]}"


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


def what_to_change(e: Estimate, why: Explanation, sizes: Mapping[str, int] | None = None) -> str:
    """In a config, to make the limiting part smaller. ``sizes``: the axes whose blocks can be
    larger, for the fill smaller, and up to which size; None where that is not known."""
    if why.saving_us < WORTH_SHARE * e.time_us:
        return "no other config can save much of it"
    change = PART_WORDS[TimePart(why.limiting_part)].change
    if why.limiting_part in (*GROWING, parts.FILL):
        kind, way = ("smaller", "down") if why.limiting_part == parts.FILL else ("larger", "up")
        if sizes is not None and not sizes:
            return f"no block can be {kind} while the others stay"
        named = " or ".join(f"{name} {way} to {size}" for name, size in (sizes or {}).items())
        change = change.replace(" blocks", f" blocks ({named or 'if any is legal and fits'})", 1)
    return f"{change} (at most {part_us(why.saving_us)} less)"


def faster_text(faster: FasterTrial, base: Estimate, name: str) -> str:
    """Which changes of the config saved most among the trials, and the VMEM that they cost."""
    e = faster.trial.estimate
    assert e is not None
    changes = ", ".join(f"{part}={value}" for part, value in faster.changed.items())
    vmem = f"VMEM {mebibytes(base.vmem_used_bytes)} → {mebibytes(e.vmem_used_bytes)}"
    return f"{changes} saves {part_us(faster.saved_us)} ({name}, {vmem})"


def effect_text(effect: PartEffect) -> str:
    """What one part of a config does to the time, when nothing else changes; with the interval in
    which the factor is."""
    if not effect.changes:
        return "not known yet: no trial with a time changes it alone"
    change = effect.largest
    if change is None:
        return f"no difference that can be told: less than {effect.changes[0].margin:.1%}"
    low, high = change.interval
    return f"{change.value} takes {change.ratio:.2f} times as long ({low:.2f} to {high:.2f})"


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


def _steps(e: Estimate, why: Explanation) -> str:
    """Of one core."""
    return f"{why.steps:,}, {part_us(e.time_us / why.steps)} each" if why.steps > 1 else "1"


def _vmem(e: Estimate, _: Explanation) -> str:
    share = f", {e.vmem_used_bytes / e.vmem_allowed_bytes:.0%}" if e.vmem_allowed_bytes else ""
    return f"{mebibytes(e.vmem_used_bytes)} of {mebibytes(e.vmem_allowed_bytes)}{share}"


def _over(value: float, least: float) -> float | None:
    return value / least if least else None


def not_served(best: Comparison) -> str:
    """Why the fastest trial is not what is served. ``best``: the fastest is the faster of these."""
    if best.tie:
        return f"{why(best)} Of such the one with {TIE_RULE} is served."
    return (
        f"{best.faster.name} is estimated {best.times_as_fast:.2f} times as fast as what is "
        "served: it could not be verified, or came in after the last publication."
    )


FACTS: tuple[Fact, ...] = (
    ("time", lambda e, _: f"{micros(e.time_us)} {error_bar(e.error)}, {e.model}"),
    ("limited by", _limit),
    ("calls", lambda e, _: "; ".join(map(_call, e.calls))),
    ("kernel and XLA", lambda e, _: _shared(e)),
    ("roofline", _roofline),
    ("matrix units", _matrix),
    ("HBM traffic", _traffic),
    (
        "HBM rate",
        lambda e, why: (
            f"{e.hbm_bytes / e.time_us / 1e3:,.0f} GB/s, mean burst {size(why.burst_bytes)}"
        ),
    ),
    ("grid steps", _steps),
    ("DMAs", lambda _, why: f"{why.dma_count:,}"),
    ("VMEM used", _vmem),
    ("VMEM by operand", lambda _, why: ", ".join(f"{n} {size(used)}" for n, used in why.vmem)),
    ("spills", lambda _, why: f"{why.spill_bundles:,} bundles" if why.spill_bundles else "none"),
    ("notes", lambda e, _: "; ".join(e.notes)),
)
