"""The *legal* question: rules of Pallas on TPU, decided on a trace alone."""

from collections.abc import Iterator

from autotune.domain import outcome as outcomes
from autotune.domain.key import Chip, ChipInfo
from autotune.domain.problem import ARBITRARY, PARALLEL, memory_bits, values_per_word
from autotune.domain.trace import Operand, Trace
from autotune.estimating.bad_visits import bad_output_visits, is_read, unread_input

BadSemantics = outcomes.SemanticsRank | outcomes.ParallelAfterArbitrary | outcomes.SequentialAxis


def misaligned(trace: Trace, chip: ChipInfo) -> outcomes.MisalignedBlock | None:
    """The first block whose shape is not aligned, or None.

    Source: ``_check_block_mappings`` in jax/_src/pallas/mosaic/lowering.py: the last two
    dimensions must be multiples of (8, 128) or the whole dimension; a rank-1 block must be the
    whole, a multiple of 8·128, or a power of two of at least 128 times the packing of its dtype.
    Some compilers want whole tiles of narrow dtypes, too (``whole_tiles_up_to_bits``).
    """
    for op in (op for call in trace.calls for op in call.operands):
        if op.space == "smem" and op.blocks == op.blocks_total == 1:
            continue
        if op.space in ("default", "vmem", "smem"):
            broken = _misaligned_block(op, chip)
            if broken:
                return broken
    return None


def illegal_semantics(trace: Trace) -> BadSemantics | None:
    """Why the semantics that a call was traced with are against the rules, or None."""
    return next((bad for call in trace.calls if (bad := _illegal_semantics(call))), None)


def sequential_axis(
    trace: Trace, axis: int, *, shown: bool = True
) -> outcomes.SequentialAxis | None:
    """Why a grid axis must not be ``parallel``, or None when it may be.

    An axis may be parallel when no output block is written from two of its positions and no
    carried scratch crosses it: the scratch is reset on axes that are all inside it. Without
    ``shown``, what the trace leaves open counts as right.
    """
    if trace.grid[axis] == 1:
        return None
    for dependency, buffer in _dependencies(trace, axis, shown=shown):
        return outcomes.SequentialAxis(axis=axis, dependency=dependency, buffer=buffer)
    return None


def _dependencies(
    trace: Trace, axis: int, *, shown: bool
) -> Iterator[tuple[outcomes.Dependency, str]]:
    """What ties the positions of an axis together, and the name of the buffer."""
    for op in (op for op in trace.operands if is_read(op) and op.is_pipelined):
        if not op.exclusive[axis]:
            yield outcomes.Dependency.SHARED_OUTPUT, op.name
    for op in trace.operands:
        if shown and is_read(op) and not op.is_pipelined and op.space != "semaphore":
            yield outcomes.Dependency.OUTPUT_BY_HAND, op.name
    for number, scratch in enumerate(trace.scratch):
        if not scratch.carried:
            continue
        if scratch.reset_axes is None:
            if shown:
                yield outcomes.Dependency.SCRATCH, f"scratch {number}"
        elif any(reset <= axis for reset in scratch.reset_axes):
            yield outcomes.Dependency.SCRATCH_ALONG_AXIS, f"scratch {number}"


def parallel_prefix(trace: Trace) -> int:
    """How many leading grid axes may be parallel in every call; parallel axes must precede
    arbitrary ones."""
    calls = [(call, range(len(call.grid))) for call in trace.calls]
    return min(next((n for n in axes if sequential_axis(c, n)), len(axes)) for c, axes in calls)


def split_axis(grid: tuple[int, ...], semantics: tuple[str, ...]) -> int | None:
    """The axis that the compiler divides between the two cores of a megacore.

    Seen in listings of v4 and v5p (jax 0.10 and 0.12): the first parallel axis with an even
    extent, else the first parallel one with more than one block; None when nothing is divided.
    """
    parallel = [axis for axis, s in enumerate(semantics) if s == PARALLEL and grid[axis] > 1]
    return next((axis for axis in parallel if grid[axis] % 2 == 0), next(iter(parallel), None))


def semantics_variants(trace: Trace, chip: Chip) -> list[tuple[str, ...]]:
    """Legal ``dimension_semantics`` of the kernel's own axes that compile to different programs,
    the most parallel first.

    With one core the semantics do not change the program (equal listings on v5e, v6e and v7x),
    so only the most parallel one is kept. On a megacore those that divide the same axis are equal.
    """
    rank, prefix, added = len(trace.grid), parallel_prefix(trace), len(trace.added_axes)
    counts = range(max(prefix, added), added - 1, -1)
    candidates = [(PARALLEL,) * n + (ARBITRARY,) * (rank - n) for n in counts]
    if not chip.is_megacore:
        return [candidates[0][added:]]
    seen: dict[int | None, tuple[str, ...]] = {}
    for semantics in candidates:
        seen.setdefault(split_axis(trace.grid, semantics), semantics[added:])
    return list(seen.values())


def _illegal_semantics(trace: Trace) -> BadSemantics | None:
    """Of one call. Its author is believed where the trace leaves it open: verification runs it on
    two cores."""
    semantics = trace.dimension_semantics
    if not semantics:
        return None
    if len(semantics) != len(trace.grid):
        return outcomes.SemanticsRank(semantics=len(semantics), grid=len(trace.grid))
    for axis, kind in enumerate(semantics):
        if kind != PARALLEL:
            continue
        if ARBITRARY in semantics[:axis]:
            return outcomes.ParallelAfterArbitrary(axis=axis)
        sequential = sequential_axis(trace, axis, shown=False)
        if sequential:
            return sequential
    return None


def violation(
    trace: Trace, chip: ChipInfo, default: Trace | None = None
) -> outcomes.Violation | None:
    """The first rule that a traced candidate breaks, or None. ``default``: of the default config,
    where it is known."""
    return bad_blocks(trace, chip, default) or illegal_semantics(trace)


def bad_blocks(trace: Trace, chip: ChipInfo, default: Trace | None) -> outcomes.Violation | None:
    """The first rule on blocks that it breaks whatever the semantics, or None."""
    visits = bad_output_visits(trace)
    return misaligned(trace, chip) or visits or unread_input(trace, default)


def illegal(broken: outcomes.Violation) -> outcomes.Illegal:
    """The outcome of a candidate that breaks a rule."""
    return outcomes.Illegal(rule=broken.kind, violation=broken)


def _misaligned_block(op: Operand, chip: ChipInfo) -> outcomes.MisalignedBlock | None:
    if len(op.block) < 2:
        return _misaligned_vector(op, chip) if op.block else _misaligned_at(op, 0, 0)
    if _is_off(op, -1, chip.num_lanes):
        return _misaligned_at(op, -1, chip.num_lanes)
    rows = _rows(op.dtype, chip)
    return _misaligned_at(op, -2, rows) if _is_off(op, -2, rows) else None


def _rows(dtype: str, chip: ChipInfo) -> int:
    """What a block has a multiple of: whole tiles of a narrow dtype where this compiler wants
    them."""
    is_tiled = memory_bits(dtype) <= chip.whole_tiles_up_to_bits
    return chip.num_sublanes * (values_per_word(dtype) if is_tiled else 1)


def _is_off(op: Operand, place: int, multiple: int) -> bool:
    return op.block[place] != op.shape[place] and op.block[place] % multiple != 0


def _misaligned_vector(op: Operand, chip: ChipInfo) -> outcomes.MisalignedBlock | None:
    """A block of rank 1."""
    size, multiple = op.block[0], chip.num_sublanes * chip.num_lanes
    least = chip.num_lanes * values_per_word(op.dtype)
    if not _is_off(op, 0, multiple) or (size >= least and size & (size - 1) == 0):
        return None
    return _misaligned_at(op, 0, multiple, least_power=least)


def _misaligned_at(
    op: Operand, place: int, multiple: int, least_power: int | None = None
) -> outcomes.MisalignedBlock:
    if not op.block:
        return outcomes.MisalignedBlock(operand=op.name, block=())
    return outcomes.MisalignedBlock(
        operand=op.name,
        block=op.block,
        dimension=place % len(op.block),
        whole=op.shape[place],
        multiple=multiple,
        least_power=least_power,
        nearest=_nearest(op.block[place], op.shape[place], multiple, least_power),
    )


def _nearest(size: int, whole: int, multiple: int, least_power: int | None) -> tuple[int, ...]:
    """The legal sizes next to a wrong one, below and above."""
    legal = {whole, size // multiple * multiple, -(-size // multiple) * multiple}
    if least_power is not None:
        power = 1 << (size.bit_length() - 1)
        legal |= {max(p, least_power) for p in (power, 2 * power)}
    sizes = [choice for choice in legal if 0 < choice <= whole]
    below = [choice for choice in sizes if choice < size]
    above = [choice for choice in sizes if choice > size]
    return tuple(([max(below)] if below else []) + ([min(above)] if above else []))
