"""The *legal* question: rules of Pallas on TPU, decided on a trace alone.

And the least time that a candidate can take, from its trace and the chip alone.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from autotune.domain import outcome as outcomes
from autotune.domain.key import Chip, ChipInfo
from autotune.domain.problem import ARBITRARY, PARALLEL, memory_bits, values_per_word
from autotune.domain.trace import Operand, Trace
from autotune.estimating.block_visits import bad_output_visits, is_read, unread_input

# What one grid step costs at least, apart from its work. The Pallas documentation speaks of about
# 0.35 us on v5e; the published v5e rows give 525 cycles of 1.5 GHz. Only orders candidates.
STEP_OVERHEAD_US = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Parts in microseconds; ``cores`` is how many TensorCores share the work.

    ``fill_us``: the first blocks in and the last one out, which overlap with nothing.
    ``by_hand_us``: operands that stay in HBM, each once: a kernel may need less of them (pages of
    a cache) or more.
    """

    compute_us: float
    memory_us: float
    overhead_us: float
    fill_us: float
    cores: int
    by_hand_us: float = 0.0

    @property
    def guess_us(self) -> float:
        """For ordering candidates before anything is compiled."""
        memory_us = self.memory_us + self.by_hand_us
        return max(self.compute_us, memory_us) + self.overhead_us + self.fill_us


_TIMES = ("compute_us", "memory_us", "overhead_us", "fill_us", "by_hand_us")


def roofline(trace: Trace, chip: ChipInfo) -> Roofline:
    """Matrix work at the chip's peak, HBM traffic at its bandwidth, a fixed cost per step; calls
    of a function one after the other.

    A megacore halves all three when an axis is divided between its cores; capacities in
    ``ChipInfo`` are per core.
    """
    parts = [(_of_call(call, chip), 1 if call.runs is None else call.runs) for call in trace.calls]
    times = {name: sum(n * getattr(part, name) for part, n in parts) for name in _TIMES}
    return Roofline(**times, cores=parts[0][0].cores)


def _of_call(trace: Trace, chip: ChipInfo) -> Roofline:
    divided = chip.num_cores > 1 and split_axis(trace.grid, trace.dimension_semantics) is not None
    cores = chip.num_cores if divided else 1
    by_hand_bytes = sum(op.hbm_bytes for op in trace.operands if op.space in ("any", "hbm"))
    # One block of each operand.
    first_bytes = sum(op.hbm_bytes / max(1, op.fetches) for op in trace.operands if op.is_pipelined)
    return Roofline(
        compute_us=trace.mxu_flops / (peak_ops_per_s(trace.mxu_dtype, chip) * cores) * 1e6,
        memory_us=(trace.hbm_bytes - by_hand_bytes) / (chip.hbm_bytes_per_s * cores) * 1e6,
        overhead_us=trace.steps * STEP_OVERHEAD_US / cores,
        fill_us=first_bytes / chip.hbm_bytes_per_s * 1e6,
        cores=cores,
        by_hand_us=by_hand_bytes / (chip.hbm_bytes_per_s * cores) * 1e6,
    )


def physical_bound_us(
    trace: Trace, chip: ChipInfo, listed_bytes: int = 0, in_vmem: Collection[int] = ()
) -> float:
    """The least that one run of a call takes at the chip's peak rates: its certain operations, and
    the bytes of blocks whose visits are known, or ``listed_bytes``, those of the DMAs of one core,
    where these are more. Of what a kernel moves by hand only these are known: it may leave most of
    a result unwritten. ``in_vmem``: operands that XLA put there ahead of it."""
    cores = _of_call(trace, chip).cores
    traced_bytes = sum(op.hbm_bytes for op in _certain(trace, in_vmem)) / cores
    memory_us = max(traced_bytes, listed_bytes) / chip.hbm_bytes_per_s * 1e6
    peak = peak_ops_per_s(trace.mxu_dtype, chip) * cores
    return max(memory_us, trace.least_mxu_flops / peak * 1e6)


def least_us(trace: Trace, chip: ChipInfo, in_vmem: Collection[int] = ()) -> float:
    """The least that one run of a call takes with any config, on all cores of the chip: its certain
    operations at the peak rate, and each block whose visits are known moved once. ``in_vmem`` as
    in ``physical_bound_us``."""
    once_bytes = sum(
        op.hbm_bytes * op.blocks / max(1, op.fetches) for op in _certain(trace, in_vmem)
    )
    compute_s = trace.least_mxu_flops / peak_ops_per_s(trace.mxu_dtype, chip)
    return max(once_bytes / chip.hbm_bytes_per_s, compute_s) / chip.num_cores * 1e6


def _certain(trace: Trace, in_vmem: Collection[int]) -> Iterator[Operand]:
    """The operands that cross HBM in blocks whose visits are known."""
    for number, operand in enumerate(trace.operands):
        if number not in in_vmem and operand.is_pipelined and operand.exact:
            yield operand


def peak_ops_per_s(dtype: str | None, chip: ChipInfo) -> float:
    """Peak of the matrix unit. A float32 product at default precision is one bf16 pass."""
    narrow = chip.fp8_ops_per_s if dtype and dtype.startswith("float8") else 0.0
    if dtype in ("int8", "uint8", "int4", "uint4"):
        narrow = chip.int8_ops_per_s * (2 if dtype.endswith("4") else 1)
    return max(narrow, chip.bf16_ops_per_s)


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


def illegal_semantics(
    trace: Trace,
) -> outcomes.SemanticsRank | outcomes.ParallelAfterArbitrary | outcomes.SequentialAxis | None:
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
    return min(map(_parallel_prefix, trace.calls))


def _parallel_prefix(trace: Trace) -> int:
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


def _illegal_semantics(
    trace: Trace,
) -> outcomes.SemanticsRank | outcomes.ParallelAfterArbitrary | outcomes.SequentialAxis | None:
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
