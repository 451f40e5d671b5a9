"""What to change in a kernel, in words."""

from collections.abc import Callable, Iterator, Mapping

from autotune.domain.change import ChangeKind
from autotune.domain.evidence import Standard
from autotune.domain.finding import Advice, Observation, SourceFinding
from autotune.domain.profile import Cause, NamedPart
from autotune.wording.publication import verification
from autotune.wording.units import counted, error_bar, mebibytes, micros

_KINDS = {"P": "parallel", "A": "arbitrary"}

CAUSES: Mapping[ChangeKind, str] = {
    ChangeKind.WIDE_SUM: "the matrix unit sums in 32 bits: a bfloat16 sum does not compile",
    ChangeKind.VMEM_LIMIT: "the kernel needs more VMEM than the compiler gives it by default",
    ChangeKind.SEMANTICS: "one of the two cores has nothing to do",
    ChangeKind.GRID_ORDER: "blocks are fetched again that could stay where they are",
    ChangeKind.NO_BOUNDS_CHECKS: "the scalar unit checks the bounds of each copy and dynamic index",
    ChangeKind.UNROLLED: "each turn of the loop waits for the results of the one before",
    ChangeKind.LATE_SCALE: "the product has fewer columns than its left operand, which is scaled",
    ChangeKind.EARLY_SCALE: "the product is scaled, and has more columns than its left operand",
    ChangeKind.BUFFERS: "a copy of a small block takes longer than a step: two are too few at once",
}


_CHANGES: Mapping[ChangeKind, Callable[[str], str]] = {  # what is to be written in the source
    ChangeKind.WIDE_SUM: lambda _: "preferred_element_type=float32, and a cast of the result",
    ChangeKind.VMEM_LIMIT: lambda n: f"vmem_limit_bytes of {mebibytes(int(n))}",
    ChangeKind.SEMANTICS: lambda letters: (
        "dimension_semantics " + ", ".join(_KINDS[letter] for letter in letters)
    ),
    ChangeKind.GRID_ORDER: lambda axes: (
        f"the grid with its axes in the order {', '.join(axes)} "
        "(counted from 0), in the index maps and program_ids as well"
    ),
    ChangeKind.NO_BOUNDS_CHECKS: lambda _: "disable_bounds_checks=True",
    ChangeKind.UNROLLED: lambda turns: f"unroll={turns}",
    ChangeKind.LATE_SCALE: lambda sign: (
        f"the scale of the left operand behind the product ({sign})"
    ),
    ChangeKind.EARLY_SCALE: lambda sign: f"the scale on the left operand of the product ({sign})",
    ChangeKind.BUFFERS: lambda value: (
        f"pltpu.emit_pipeline in place of the grid, with pl.Buffered({value[0]}) for its inputs"
        + ", and core_axis=0 under a parallel grid of 2" * value.endswith("x2")
    ),
    ChangeKind.COST_ESTIMATE: lambda figures: (
        "cost_estimate=pl.CostEstimate(flops={}, transcendentals={}, bytes_accessed={})".format(
            *figures.split(",")
        )
    ),
}


def advice_lines(advice: Advice) -> Iterator[str]:
    """All that is to be said, paragraph by paragraph."""
    if advice.reason:
        yield f"It has no time as it is: {advice.reason}"
    for number, finding in enumerate(advice.findings, 1):
        yield ""
        yield from _finding_lines(f"{number}. ", finding)
    if advice.together:
        yield ""
        yield from _finding_lines("Together: ", advice.together)
    yield ""
    yield _summary(advice)
    if advice.observations:
        yield "What needs thought:"
        yield from (f"  {_observation_text(seen)}" for seen in advice.observations)
    for missing in advice.costs:
        yield ""
        place = missing.change.place
        yield f"{place.file}:{place.line}: XLA is not told what the kernel costs. In this problem:"
        yield f"  {_CHANGES[missing.change.kind](missing.change.value)}"
        yield from (f"  {line}" for line in missing.diff.splitlines())
    for wrong in advice.wrong:
        (change,), (line,) = wrong.changes, wrong.lines
        yield f"Left out: {change.kind} (line {line.line}) saves {_saved(wrong)}, but it is "
        yield f"  {verification(wrong.verdict)}"


def _observation_text(seen: Observation) -> str:
    """A fact that needs thought, with its lines and cycles."""
    if seen.operand:
        return (
            f"{seen.operand} leaves {seen.share:.0%} of the lanes empty, in VMEM and in HBM: make "
            "its last dimension a longer one"
        )
    where = " and ".join(f"line {line.line}" for line in seen.lines)
    took = f"{seen.share:.0%} of the time, {seen.cycles:,} cycles"
    if seen.part is not None:
        return f"{seen.part} take {took}: {_PARTS.get(seen.part, 'no line of the source')}"
    if seen.cause is not None:
        return f"{where} waits {_WAITS[seen.cause]}: {took}: {seen.lines[-1].text}"
    return f"{where} all use the {seen.unit}: {took}: none of them is faster beside the others"


_PARTS: Mapping[NamedPart, str] = {
    NamedPart.PIPELINE: "larger blocks make fewer of them (autotune search)",
    NamedPart.PIPELINE_WAITS: "blocks come later than they are needed",
    NamedPart.FILL: "smaller blocks would be there sooner",
    NamedPart.WAITS: "the kernel's own copies come later than they are needed",
}
_WAITS: Mapping[Cause, str] = {
    Cause.MATRIX_STALL: "for the matrix unit",
    Cause.LANE_STALL: "for sums or transposes across lanes",
    Cause.SPILL: "for values that found no register",
    Cause.HBM: "for the bytes of a copy, which must come earlier or be fewer",
    Cause.LATENCY: "for a copy to answer, which could begin a step earlier",
    Cause.LINKS: "for other devices, which could be sent to a step earlier",
}


def _finding_lines(opening: str, finding: SourceFinding) -> Iterator[str]:
    kinds = " and ".join(change.kind for change in finding.changes)
    yield f"{opening}{kinds}: {_saved(finding)}"
    for change, line in zip(finding.changes, finding.lines, strict=True):
        yield f"  {line.file}:{line.line}: {line.text}"
        if len(finding.changes) == 1:
            yield f"  Why: {CAUSES[change.kind]}."
        yield f"  Change: {_CHANGES[change.kind](change.value)}."
    yield f"  Checked: {checked_text(finding)}"
    if finding.diff:
        yield from (f"  {line}" for line in finding.diff.splitlines())


def _saved(finding: SourceFinding) -> str:
    after = micros(finding.after_us)
    if finding.before_us is None:
        return f"it compiles, and takes {after} {error_bar(finding.margin)}"
    share = f"{finding.gain:.1%} {error_bar(finding.margin, 1)}"
    return f"{share} of the time, {micros(finding.before_us)} to {after}"


def checked_text(finding: SourceFinding) -> str:
    """What the gate says of the changed kernel, and what nobody has checked."""
    text = verification(finding.verdict)
    if finding.verdict.proof.standard is Standard.DEFAULT:
        text = text.replace("the default config", "the kernel as it is")
    if any(change.kind is ChangeKind.NO_BOUNDS_CHECKS for change in finding.changes):
        text += "; no access was out of bounds there. Not checked: other numbers, where data "
        text += "decides what is read"
    if finding.diff and finding.same_program is None:
        text += ". The change was compiled, the file with the diff was not"
    return f"{text}."


def _summary(advice: Advice) -> str:
    few = advice.tried - len(advice.findings) - len(advice.wrong)
    text = f"{counted(advice.tried, 'change')} tried"
    return f"{text}, {few} without a gain that can be told apart." if few else f"{text}."
