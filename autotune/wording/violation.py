"""Sentences about candidates that are refused before they are compiled: rules and VMEM."""

import re

from autotune.domain.outcome import (
    CompileFailed,
    Crashed,
    Illegal,
    LimitSource,
    OutOfVmem,
    TimedOut,
)
from autotune.domain.violation import (
    Dependency,
    MisalignedBlock,
    ParallelAfterArbitrary,
    RevisitedOutput,
    Rule,
    SemanticsRank,
    SequentialAxis,
    UnsafeAlias,
    UnwrittenOutput,
    Violation,
)
from autotune.wording.units import mebibytes

# Refusals are counted by rule: their figures differ from point to point.
_RULES = {
    Rule.BLOCK_ALIGNMENT: "block not aligned",
    Rule.OUTPUT_REVISITED: "output block visited again after others",
    Rule.OUTPUT_UNWRITTEN: "output not fully written",
    Rule.UNSAFE_ALIAS: "an input that shares memory with an output is read too late",
    Rule.SEMANTICS_RANK: "another number of dimension semantics than of grid axes",
    Rule.PARALLEL_AFTER_ARBITRARY: "a parallel grid axis behind an arbitrary one",
    Rule.SEQUENTIAL_AXIS: "a grid axis that must not be parallel",
}

_DEPENDENCIES = {
    Dependency.SHARED_OUTPUT: "output {} has blocks that are written from several positions of it",
    Dependency.OUTPUT_BY_HAND: "output {} is written by hand: nothing shows that positions are "
    "apart",
    Dependency.SCRATCH: "{} carries values from step to step",
    Dependency.SCRATCH_ALONG_AXIS: "{} carries values along it or across it",
}

_LIMITS = {
    LimitSource.CHIP: "the chip has {}",
    LimitSource.CONFIG: "the limit of this config is {}",
    LimitSource.COMPILER: "the compiler's default limit is {}",
    LimitSource.KERNEL: "the limit that the kernel sets is {}",
}

_OVER = {
    LimitSource.CHIP: "over the VMEM of the chip, {}",
    LimitSource.CONFIG: "over the VMEM limit of the config, {}",
    LimitSource.COMPILER: "over the compiler's default VMEM limit, {}",
    LimitSource.KERNEL: "over the VMEM limit that the kernel sets, {}",
}


def violation_text(violation: Violation) -> str:
    """One sentence: what is wrong, with its numbers, and for a block what would be right."""
    match violation:
        case MisalignedBlock():
            return _misaligned(violation)
        case RevisitedOutput(operand=name, visits=visits, blocks=blocks):
            return (
                f"blocks of output {name} are visited again after others ({visits} visits of "
                f"{blocks} blocks): what was written is lost"
            )
        case UnwrittenOutput(operand=name, blocks=blocks, blocks_total=total):
            return f"only {blocks} of {total} blocks of output {name} are ever written"
        case UnsafeAlias():
            return "an input that shares memory with an output is read where another step writes"
        case SemanticsRank(semantics=semantics, grid=grid):
            return f"{semantics} dimension semantics for a grid of {grid} axes"
        case ParallelAfterArbitrary(axis=axis):
            return f"grid axis {axis} is parallel behind an arbitrary one"
        case SequentialAxis(axis=axis, dependency=dependency, buffer=buffer):
            reason = _DEPENDENCIES[dependency].format(buffer)
            return f"grid axis {axis} must not be parallel: {reason}"


def out_of_vmem_text(
    used_bytes: int,
    allowed_bytes: int,
    *,
    by_rule: bool = False,
    limited_by: LimitSource | None = None,
    remedy_bytes: int | None = None,
) -> str:
    """Which limit is too small and who set it. ``remedy_bytes``: of a kernel that passes no limit
    on, the one that it should ask for."""
    at_least, allowed = "at least " * by_rule, mebibytes(allowed_bytes)
    limit = _LIMITS[limited_by].format(allowed) if limited_by else f"{allowed} are allowed"
    text = f"needs {at_least}{mebibytes(used_bytes)} of VMEM, {limit}"
    if remedy_bytes is None and limited_by in (LimitSource.COMPILER, LimitSource.CONFIG):
        return f"{text}: `vmem_limit_bytes` >= {used_bytes:_} is needed"
    if remedy_bytes is None:
        return text
    return (
        f"{text}, and no limit of a config is passed on: give pallas_call `compiler_params` with "
        f"`vmem_limit_bytes` >= {remedy_bytes:_}"
    )


# JAX's words where a shard_map has no mesh, or another than the one that code is traced for.
_MESH = re.compile(
    r"unbound axis name|mesh passed to shard_map|product of mesh_shape|mesh cannot be empty|"
    r"context mesh|refer to an axis marked as manual",
    re.IGNORECASE,
)


def without_mesh_text(message: str) -> str | None:
    """What to do about a function that JAX refuses for its mesh; None for anything else."""
    if not _MESH.search(message):
        return None
    return (
        "the function is written for a mesh of devices: give the declaration "
        "`mesh=lambda problem: {'x': 4}` with the names and sizes of its axes, and shard_map "
        "`mesh=jax.sharding.get_abstract_mesh()` in `build` or in the function that it returns "
        f"(JAX: {message.splitlines()[0][:120]})"
    )


def unverified_text(failure: Illegal | OutOfVmem | CompileFailed | TimedOut | Crashed) -> str:
    """Why the gate has no answer, and for a limit of time what can be done."""
    text = f"{failure.kind}: {failure.reason}"
    if isinstance(failure, TimedOut):
        text += (
            "; give it longer with --candidate-timeout, or the kernel a `reduced` that makes the "
            "problem small"
        )
    return text


def refusal_group(refused: Illegal | OutOfVmem | CompileFailed | TimedOut | Crashed) -> str:
    """What a refused point is counted under: its rule or its limit; else its own reason."""
    if isinstance(refused, Illegal) and refused.rule:
        return f"illegal: {_RULES[Rule(refused.rule)]}"
    if isinstance(refused, OutOfVmem) and refused.limited_by:
        return _OVER[LimitSource(refused.limited_by)].format(mebibytes(refused.allowed_bytes))
    return refused.reason


def _misaligned(wrong: MisalignedBlock) -> str:
    block = f"block {_shape(wrong.block)} of {wrong.operand}"
    if not wrong.block:
        return f"{block} has no dimension: a block in VMEM needs one, or the operand stands in SMEM"
    power = wrong.least_power
    powers = "" if power is None else f", not a power of two from {power}"
    legal = " or ".join(map(str, wrong.nearest)) + (" is" if len(wrong.nearest) == 1 else " are")
    return (
        f"{block}: {wrong.block[wrong.dimension]} is not a multiple of {wrong.multiple}{powers} "
        f"and not the whole dimension {wrong.whole}; {legal}"
    )


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
