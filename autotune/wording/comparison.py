"""Why one candidate is faster than another, in words, from the parts of both explanations."""

from collections.abc import Callable

from autotune.domain import explanation as parts
from autotune.domain.comparison import Comparison
from autotune.domain.explanation import Explanation, TimePart
from autotune.domain.outcome import Estimate
from autotune.wording.time_parts import PART_WORDS

_ENOUGH_SHARE = 0.75  # the parts named explain at least this share of what is gained
_MOST_REASONS = 3
_WORTH_SHARE = 0.1  # a part that got slower is named from this share of the difference on


def why(comparison: Comparison) -> str:
    """The answer in words."""
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
            f"{_capital(fast.name)} is {c.times_as_fast:.2f} times as fast as {slow.name}, "
            "by estimate."
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
        hint = _hint(name, c)
        clauses.append(_said(name, us, "less") + ("" if hint in before else f" ({hint})"))
        before.add(hint)
    return clauses


def _loss(c: Comparison) -> tuple[str, float] | None:
    """The part in which the faster loses most and how much, where that matters."""
    name, gained = min(c.gained_us, key=lambda g: g[1])
    difference = c.slower.estimate.time_us - c.faster.estimate.time_us
    return (name, -gained) if gained < 0 and -gained >= _WORTH_SHARE * difference else None


def _hint(name: str, c: Comparison) -> str:
    fast, slow = c.faster.estimate, c.slower.estimate
    return next(filter(None, (hint(fast, slow) for hint in _HINTS.get(name, ()))), "")


def _said(name: str, us: float, more_or_less: str) -> str:
    text = f"{us / 1000:,.1f} ms" if us >= 10_000 else f"{us:,.{1 if us >= 0.95 else 2}f} µs"
    return PART_WORDS[TimePart(name)].does.format(f"{text} {more_or_less}")


def _fewer_steps(fast: Estimate, slow: Estimate) -> str:
    return _counts("grid steps", fast, slow, lambda e: e.steps)


def _fewer_dmas(fast: Estimate, slow: Estimate) -> str:
    return _counts("DMAs", fast, slow, lambda e: e.dma_count)


def _fewer_spills(fast: Estimate, slow: Estimate) -> str:
    return _counts("bundles with spills", fast, slow, lambda e: e.spill_bundles)


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
    mib, other = fast.vmem_used_bytes / 2**20, slow.vmem_used_bytes / 2**20
    return f"{mib:.2f} MiB of VMEM instead of {other:.2f} MiB" if mib < other else ""


def _counts(what: str, fast: Estimate, slow: Estimate, count: Callable[[Explanation], int]) -> str:
    assert fast.explanation is not None
    assert slow.explanation is not None
    fewer, more = count(fast.explanation), count(slow.explanation)
    return f"{fewer:,} instead of {more:,} {what}" if fewer < more else ""


# What a smaller part comes from; the first that is so is named.
_HINTS: dict[str, tuple[Callable[[Estimate, Estimate], str], ...]] = {
    parts.ISSUE: (_fewer_spills,),
    parts.SCALAR: (_fewer_steps, _fewer_dmas),
    parts.HBM: (_fewer_bytes, _longer_bursts),
    parts.LATENCY: (_fewer_steps, _fewer_dmas),
    parts.FILL: (_smaller_blocks,),
}


def _listed(clauses: list[str]) -> str:
    return clauses[0] if len(clauses) == 1 else f"{', '.join(clauses[:-1])} and {clauses[-1]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
