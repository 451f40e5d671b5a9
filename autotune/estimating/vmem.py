"""VMEM bytes of a kernel, from its trace: the *feasible* question before the compiler is asked."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from math import prod

from autotune.domain.key import ChipInfo
from autotune.domain.outcome import LimitSource, OutOfVmem
from autotune.domain.problem import memory_bits, round_up, sublane_tile, values_per_word
from autotune.domain.trace import Operand, Scratch, Trace

# Rungs between the compiler's own limit and the chip's capacity, as powers of two of the former.
_RUNG = 2

# A kept matrix product (``Trace.kept_bytes``) ends up in VMEM as spilled registers: at 0.95 to 1.44
# times its bytes over 30 flash attention points on v4 to v7x with more than 512 columns (jax
# 0.10.2; 0.76 where the spills share space with others). Registers are 64 of 4 KiB.
_REGISTERS_BYTES = 64 * 4096
_CERTAIN_SHARE = 0.6

_MOST_MOVABLE = 10  # operands beyond are left out of the certain bytes: 2^n ways are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class VmemUse:
    """``expected_bytes``: blocks with their buffers, scratch, and large values that are kept; the
    compiler adds its own.

    ``certain_bytes``: what no compiler decision can avoid, for refusing without compiling.
    """

    expected_bytes: int
    certain_bytes: int


def vmem_use(trace: Trace, chip: ChipInfo) -> VmemUse:
    """VMEM bytes of one core, with tile padding and double buffering, of the call with most."""
    uses = [_of_call(call, chip) for call in trace.calls]
    return VmemUse(
        expected_bytes=max(use.expected_bytes for use in uses),
        certain_bytes=max(use.certain_bytes for use in uses),
    )


def over_limit(trace: Trace, chip: ChipInfo) -> tuple[VmemUse, int | None] | None:
    """What the first call uses that cannot fit under its own limit, and that limit, or None."""
    for call in trace.calls:
        use = _of_call(call, chip)
        if use.certain_bytes > limit_bytes(call.vmem_limit_bytes, chip):
            return use, call.vmem_limit_bytes
    return None


def _of_call(trace: Trace, chip: ChipInfo) -> VmemUse:
    blocks = [op for op in trace.operands if op.is_pipelined]
    scratch = [s for s in trace.scratch if s.space == "vmem"]
    expected = sum(operand_bytes(op, chip) for op in blocks)
    expected += sum(scratch_bytes(s, chip) for s in scratch)
    kept_bytes = max(0, trace.kept_bytes - _REGISTERS_BYTES)
    fixed = sum(scratch_bytes(s, chip) for s in scratch if s.carried)
    fixed += round(kept_bytes * _CERTAIN_SHARE)
    return VmemUse(
        expected_bytes=expected + kept_bytes, certain_bytes=_certain_bytes(blocks, fixed, chip)
    )


def vmem_by_name(trace: Trace, chip: ChipInfo) -> tuple[tuple[str, int], ...]:
    """Of one call: expected VMEM bytes of each operand and scratch buffer, and of large values
    kept."""
    parts = [(op.name, operand_bytes(op, chip)) for op in trace.operands if op.is_pipelined]
    scratch = [s for s in trace.scratch if s.space == "vmem"]
    parts += [(f"scratch {n}", scratch_bytes(s, chip)) for n, s in enumerate(scratch)]
    kept_bytes = max(0, trace.kept_bytes - _REGISTERS_BYTES)
    return (*parts, ("values kept", kept_bytes)) if kept_bytes else tuple(parts)


def operand_bytes(operand: Operand, chip: ChipInfo) -> int:
    """VMEM bytes that the blocks of an operand take, buffers included."""
    return operand.buffer_count * padded_bytes(operand.block, operand.dtype, chip)


def padded_bytes(shape: tuple[int, ...], dtype: str, chip: ChipInfo) -> int:
    """Bytes of a buffer in VMEM: lanes to 128, sublanes to the tile that Mosaic infers."""
    width = memory_bits(dtype)
    least = values_per_word(dtype) * (2 if chip.chip in ("v2", "v3") else 1)
    if len(shape) < 2:
        tile = least * chip.num_lanes
        return round_up(prod(shape), tile) * width // 8
    tile = sublane_tile(shape[-2], least, chip.num_sublanes)
    rows, lanes = round_up(shape[-2], tile), round_up(shape[-1], chip.num_lanes)
    return prod(shape[:-2]) * rows * lanes * width // 8


def limit_bytes(vmem_limit_bytes: int | None, chip: ChipInfo) -> int:
    """The limit in force: what the kernel asks for up to the capacity, else the compiler's own."""
    return min(vmem_limit_bytes or chip.scoped_vmem_bytes, chip.vmem_capacity_bytes)


def limit_rungs(chip: ChipInfo) -> tuple[int | None, ...]:
    """Limits worth asking for: the compiler's own (None), then doubled up to the capacity.

    Asking for more than a program needs does not change the program (on v7x it takes VMEM from
    operands that XLA would place there), so a candidate starts low and climbs only when the
    compiler says out of VMEM.
    """
    rungs: list[int | None] = [None]
    rung = chip.scoped_vmem_bytes * _RUNG
    while rung < chip.vmem_capacity_bytes:
        rungs.append(rung)
        rung *= _RUNG
    if chip.scoped_vmem_bytes < chip.vmem_capacity_bytes:
        rungs.append(chip.vmem_capacity_bytes)
    return tuple(rungs)


def lowest_rung(needed_bytes: int, chip: ChipInfo) -> tuple[int | None] | None:
    """The lowest limit that can hold ``needed_bytes``, in a 1-tuple; None when none can."""
    for rung in limit_rungs(chip):
        if needed_bytes <= limit_bytes(rung, chip):
            return (rung,)
    return None


def first_rung(use: VmemUse, chip: ChipInfo) -> tuple[int | None] | None:
    """The limit that a candidate is compiled under first, in a 1-tuple; None when none can do.

    The lowest that holds the expected bytes: a lower one might do where the compiler does better
    than expected, and would mostly cost a compilation for nothing. Where even the capacity is
    below what is expected, but not below what is certain, the compiler is asked at the capacity.
    """
    if lowest_rung(use.certain_bytes, chip) is None:
        return None
    return lowest_rung(use.expected_bytes, chip) or (limit_rungs(chip)[-1],)


def next_rung(current: int | None, chip: ChipInfo) -> int | None:
    """The next higher limit than the one that was too small; None when it was the capacity."""
    return next(
        (r for r in limit_rungs(chip) if r is not None and r > limit_bytes(current, chip)), None
    )


def out_of_vmem(
    least_bytes: int, limit: int | None, chip: ChipInfo, *, own_limit_bytes: int | None = None
) -> OutOfVmem:
    """The verdict before compiling. ``own_limit_bytes``: what a kernel that passes no limit of a
    config on should ask for itself."""
    over_chip = least_bytes > chip.vmem_capacity_bytes
    allowed = chip.vmem_capacity_bytes if over_chip else limit_bytes(limit, chip)
    refused = OutOfVmem(used_bytes=least_bytes, allowed_bytes=allowed, by_rule=True)
    return with_limit_source(refused, limit, chip, own_limit_bytes=own_limit_bytes)


def with_limit_source(
    refused: OutOfVmem, limit: int | None, chip: ChipInfo, *, own_limit_bytes: int | None = None
) -> OutOfVmem:
    """The same verdict, and who set the limit that was passed. ``limit``: of the config, or the
    kernel's own where it passes none on; the rest as in ``out_of_vmem``."""
    if refused.allowed_bytes >= chip.vmem_capacity_bytes:
        source, remedy = LimitSource.CHIP, None
    else:
        asked_by = LimitSource.CONFIG if own_limit_bytes is None else LimitSource.KERNEL
        source = LimitSource.COMPILER if limit is None else asked_by
        remedy = own_limit_bytes and min(own_limit_bytes, chip.vmem_capacity_bytes)
    return replace(refused, limited_by=source, remedy_bytes=remedy)


def _certain_bytes(blocks: Sequence[Operand], fixed_bytes: int, chip: ChipInfo) -> int:
    """The least over all ways in which XLA could keep whole operands in VMEM ahead of the call.

    An operand that lies there needs no blocks, but its array and the rest share the capacity. When
    no way fits, the least total, which is then above the capacity.
    """
    staying = [op for op in blocks if _stays_in_hbm(op, chip)]
    movable = [op for op in blocks if not _stays_in_hbm(op, chip)][:_MOST_MOVABLE]
    fixed = fixed_bytes + sum(_least_bytes(op, chip) for op in staying)
    fitting, total = [], []
    for choice in product((False, True), repeat=len(movable)):
        chosen = list(zip(movable, choice, strict=True))
        rest = fixed + sum(_least_bytes(op, chip) for op, placed in chosen if not placed)
        in_vmem = (op for op, placed in chosen if placed)
        placed = sum(prod(op.shape) * memory_bits(op.dtype) // 8 for op in in_vmem)
        total.append(placed + rest)
        if placed + rest <= chip.vmem_capacity_bytes:
            fitting.append(rest)
    return min(fitting, default=min(total))


def _stays_in_hbm(operand: Operand, chip: ChipInfo) -> bool:
    """Whether XLA has no reason to touch the array: it enters or leaves the function as it is, in
    the layout that the kernel needs, and as words where it is of booleans.

    At its boundary XLA lays an array out in the order of dimensions that pads least (checked on
    900 shapes on v4, v5e and v7x, jax 0.10); a kernel needs the last dimension minor. Where the
    two differ there is a copy, and its other end may be in VMEM.
    """
    if operand.dtype == "bool" or not operand.at_boundary:
        return False
    if chip.places_operands_in_vmem and not operand.is_output:
        return False
    natural = padded_bytes(operand.shape, operand.dtype, chip)
    orders = permutations(operand.shape)
    return natural == min(padded_bytes(order, operand.dtype, chip) for order in orders)


def _least_bytes(operand: Operand, chip: ChipInfo) -> int:
    """Bytes of the blocks even if the compiler drops double buffering."""
    # On a megacore a block that only the split axis changes stays for each core.
    stays = operand.fetches <= (2 if chip.num_cores == 2 else 1)
    buffers = 1 if stays or chip.single_buffer_fallback else operand.buffer_count
    return buffers * padded_bytes(operand.block, operand.dtype, chip)


def scratch_bytes(scratch: Scratch, chip: ChipInfo) -> int:
    """VMEM bytes of a scratch buffer."""
    return padded_bytes(scratch.shape, scratch.dtype, chip)
