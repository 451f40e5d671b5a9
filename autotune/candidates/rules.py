"""The *legal* question: rules of Pallas on TPU, decided on a trace alone."""

from autotune.domain.chip import Chip, ChipInfo
from autotune.domain.config import ARBITRARY, PARALLEL
from autotune.domain.dtype import bits
from autotune.domain.trace import Operand, Trace


def misaligned(trace: Trace, chip: ChipInfo) -> str | None:
    """Why a block shape is not aligned, or None.

    Source: ``_check_block_mappings`` in jax/_src/pallas/mosaic/lowering.py: the last two
    dimensions must be multiples of (8, 128) or the whole dimension; a rank-1 block must be the
    whole, a multiple of 8·128, or a power of two of at least 128 times the packing of its dtype.
    """
    for op in trace.operands:
        if op.space in ("default", "vmem", "smem") and not _is_aligned(op, chip):
            if op.space == "smem" and op.blocks == op.blocks_total == 1:
                continue
            return (
                f"block {_shape(op.block)} of {op.name} {_shape(op.shape)} {op.dtype} is not "
                f"aligned: {_requirement(op, chip)}"
            )
    return None


def bad_output_visits(trace: Trace) -> str | None:
    """Why an output would be wrong in this grid order whatever the semantics, or None. What
    nobody reads cannot be wrong."""
    for op in (op for op in trace.operands if _counts(op) and op.is_pipelined):
        if op.fetches != op.blocks:
            return (
                f"blocks of output {op.name} are visited again after others "
                f"({op.fetches} visits of {op.blocks} blocks): what was written is lost"
            )
        if op.blocks < op.blocks_total and not _is_aliased(trace, op):
            return (
                f"only {op.blocks} of {op.blocks_total} blocks of output {op.name} are ever written"
            )
    if not trace.alias_safe:
        return "an input that shares memory with an output is read where another step writes"
    return None


def sequential_axis(trace: Trace, axis: int, *, shown: bool = True) -> str | None:
    """Why a grid axis must not be ``parallel``, or None when it may be.

    An axis may be parallel when no output block is written from two of its positions and no
    carried scratch crosses it: the scratch is reset on axes that are all inside it. Without
    ``shown``, what the trace leaves open counts as right.
    """
    if trace.grid[axis] == 1:
        return None
    for op in (op for op in trace.operands if _counts(op) and op.is_pipelined):
        if not op.exclusive[axis]:
            return f"output {op.name} has blocks that are written from several positions of it"
    for op in trace.operands:
        if shown and _counts(op) and not op.is_pipelined and op.space != "semaphore":
            return f"output {op.name} is written by hand: nothing shows that positions are apart"
    for number, scratch in enumerate(trace.scratch):
        if not scratch.carried:
            continue
        if scratch.reset_axes is None and not shown:
            continue
        if scratch.reset_axes is None:
            return f"scratch {number} carries values from step to step"
        if any(reset <= axis for reset in scratch.reset_axes):
            return f"scratch {number} carries values along it or across it"
    return None


def parallel_prefix(trace: Trace) -> int:
    """How many leading grid axes may be parallel; parallel axes must precede arbitrary ones."""
    for axis in range(len(trace.grid)):
        if sequential_axis(trace, axis) is not None:
            return axis
    return len(trace.grid)


def split_axis(grid: tuple[int, ...], semantics: tuple[str, ...]) -> int | None:
    """The axis that the compiler divides between the two cores of a megacore.

    Seen in listings of v4 and v5p (jax 0.10 and 0.12): the first parallel axis with an even
    extent, else the first parallel one with more than one block; None when nothing is divided.
    """
    parallel = [axis for axis, s in enumerate(semantics) if s == PARALLEL and grid[axis] > 1]
    return next((axis for axis in parallel if grid[axis] % 2 == 0), next(iter(parallel), None))


def semantics_variants(trace: Trace, chip: Chip) -> list[tuple[str, ...]]:
    """Legal ``dimension_semantics`` that compile to different programs, the most parallel first.

    With one core the semantics do not change the program (equal listings on v5e, v6e and v7x),
    so only the most parallel one is kept. On a megacore those that divide the same axis are equal.
    """
    rank, prefix = len(trace.grid), parallel_prefix(trace)
    candidates = [(PARALLEL,) * n + (ARBITRARY,) * (rank - n) for n in range(prefix, -1, -1)]
    if not chip.is_megacore:
        return candidates[:1]
    seen: dict[int | None, tuple[str, ...]] = {}
    for semantics in candidates:
        seen.setdefault(split_axis(trace.grid, semantics), semantics)
    return list(seen.values())


def illegal_semantics(trace: Trace) -> str | None:
    """Why the semantics that the kernel was traced with are against the rules, or None. Its author
    is believed where the trace leaves it open: verification runs it on two cores."""
    semantics = trace.dimension_semantics
    if not semantics:
        return None
    if len(semantics) != len(trace.grid):
        return f"{len(semantics)} dimension semantics for a grid of {len(trace.grid)} axes"
    for axis, kind in enumerate(semantics):
        if kind != PARALLEL:
            continue
        if ARBITRARY in semantics[:axis]:
            return f"grid axis {axis} is parallel behind an arbitrary one"
        why = sequential_axis(trace, axis, shown=False)
        if why:
            return f"grid axis {axis} must not be parallel: {why}"
    return None


def illegal(trace: Trace, chip: ChipInfo) -> str | None:
    """The first rule that a traced candidate breaks, or None."""
    return misaligned(trace, chip) or bad_output_visits(trace) or illegal_semantics(trace)


def _counts(op: Operand) -> bool:
    """An output that somebody reads."""
    return op.is_output and not op.is_unread


def _is_aligned(op: Operand, chip: ChipInfo) -> bool:
    if not op.block:
        return False
    lanes, sublanes = chip.num_lanes, chip.num_sublanes
    if len(op.block) == 1:
        size, packing = op.block[0], max(1, 32 // _memory_bits(op.dtype))
        return (
            size == op.shape[0]
            or size % (sublanes * lanes) == 0
            or (size >= lanes * packing and size & (size - 1) == 0)
        )
    minor_ok = op.block[-1] == op.shape[-1] or op.block[-1] % lanes == 0
    return minor_ok and (op.block[-2] == op.shape[-2] or op.block[-2] % sublanes == 0)


def _requirement(op: Operand, chip: ChipInfo) -> str:
    lanes, sublanes = chip.num_lanes, chip.num_sublanes
    if len(op.block) == 1:
        packing = max(1, 32 // _memory_bits(op.dtype))
        return (
            f"it must be the whole, a multiple of {sublanes * lanes}, or a power of two from "
            f"{lanes * packing}"
        )
    return f"the last two sizes must be multiples of ({sublanes}, {lanes}) or the whole dimension"


def _memory_bits(dtype: str) -> int:
    """Booleans are 32-bit in Mosaic's memory references."""
    return 32 if dtype == "bool" else bits(dtype)


def _is_aliased(trace: Trace, operand: Operand) -> bool:
    return any(trace.operands[out] is operand for _, out in trace.aliases)


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(str(size) for size in shape)
