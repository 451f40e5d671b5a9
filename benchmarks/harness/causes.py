"""The named cause of a difference between our VMEM bytes and the compiler's, from its own table."""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain.trace import Operand
from autotune.estimating.vmem import operand_bytes, scratch_bytes
from benchmarks.harness.evidence import VmemEvidence
from benchmarks.harness.points import MIB, CandidatePoint

PLACED = "operands that XLA had already placed in VMEM"
SINGLE = "blocks buffered once"
DOUBLED = "blocks that stay, yet buffered twice: their index map names a grid axis"
WINDOWS = "blocks padded or buffered otherwise"
FORWARDED = "scratch forwarded in registers"
SCRATCH = "scratch padded otherwise"
SPILLS = "registers spilled to VMEM"
UNSPILLED = "large values kept in less space than they have"
INTERNAL = "the compiler's internal scratch"
SHARED = "buffers that share space, never alive together"
_KNOWN = (PLACED, SINGLE, DOUBLED, FORWARDED, SPILLS, UNSPILLED, INTERNAL, SHARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The largest part of a difference, in its direction; ``parts`` add up to all of it."""

    name: str
    parts: Mapping[str, int]

    @property
    def is_known(self) -> bool:
        return self.name in _KNOWN

    def __str__(self) -> str:
        listed = sorted(self.parts.items(), key=lambda part: -abs(part[1]))
        return "; ".join(f"{name} {size / MIB:+.3f} MiB" for name, size in listed if size)


def cause(point: CandidatePoint, used_bytes: int, evidence: VmemEvidence) -> Cause:
    """Which kind of allocation makes the compiler's bytes differ from ours."""
    parts = _window_parts(point, evidence) | _scratch_parts(point, evidence)
    difference = used_bytes - point.use.expected_bytes
    parts[SHARED] = difference - sum(parts.values())
    sign = 1 if difference > 0 else -1
    return Cause(name=max(parts, key=lambda name: sign * parts[name]), parts=parts)


def _window_parts(point: CandidatePoint, evidence: VmemEvidence) -> dict[str, int]:
    """What each window takes less or more than we expect."""
    parts = {PLACED: 0, SINGLE: 0, DOUBLED: 0, WINDOWS: 0}
    for name, operand in _windows(point):
        expected = operand_bytes(operand, point.chip)
        if name in evidence.placed:
            parts[PLACED] -= expected
        elif f"{name} single-buffered" in evidence.after:
            parts[SINGLE] += evidence.after[f"{name} single-buffered"] - expected
        elif operand.fetches == 1 and evidence.after.get(name) == 2 * expected:
            parts[DOUBLED] += expected
        else:
            parts[WINDOWS] += evidence.after.get(name, 0) - expected
    return parts


def _windows(point: CandidatePoint) -> list[tuple[str, Operand]]:
    """Operands under the compiler's names: inputs are counted behind the scalar operands."""
    scalars = point.trace.scalar_operands
    inputs = [op for op in point.trace.operands if not op.is_output]
    outputs = [op for op in point.trace.operands if op.is_output]
    named = [(f"input {scalars + n}", op) for n, op in enumerate(inputs)]
    return named + [(f"output {n}", op) for n, op in enumerate(outputs)]


def _scratch_parts(point: CandidatePoint, evidence: VmemEvidence) -> dict[str, int]:
    windows = sum(operand_bytes(op, point.chip) for op in point.trace.operands if op.is_pipelined)
    scratch = [s for s in point.trace.scratch if s.space == "vmem"]
    declared = sum(scratch_bytes(s, point.chip) for s in scratch)
    rest = point.use.expected_bytes - windows - declared
    before = evidence.before.get("scratch operand", 0)
    after = evidence.after.get("scratch operand", 0)
    others = {
        kind: size
        for kind, size in evidence.after.items()
        if not kind.startswith(("input ", "output ")) and kind != "scratch operand"
    }
    spills = sum(size for kind, size in others.items() if "spilled" in kind)
    return {
        FORWARDED: after - before,
        SCRATCH: before - declared,
        SPILLS: max(0, spills - rest),
        UNSPILLED: min(0, spills - rest),
        INTERNAL: sum(others.values()) - spills,
    }
