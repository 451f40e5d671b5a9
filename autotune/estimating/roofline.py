"""The least time that a candidate can take, from its trace and the chip alone."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from autotune.domain.key import ChipInfo
from autotune.domain.trace import Operand, Trace
from autotune.estimating.legality import split_axis

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


def least_us(
    trace: Trace, chip: ChipInfo, listed_bytes: int = 0, in_vmem: Collection[int] = ()
) -> float:
    """The least that one run of a call takes with any config, on all cores of the chip: its certain
    operations at the peak rate, and each block of known visits once. Where integers choose blocks,
    others may need less arithmetic. Else what it moves, at most all arguments and results once."""
    certain = _certain(trace, in_vmem)
    once_bytes = sum(op.hbm_bytes * op.blocks / max(1, op.fetches) for op in certain)
    steered = any(op.space == "smem" and "int" in op.dtype for op in trace.operands)
    flops = 0 if trace.scalar_operands or steered else trace.least_mxu_flops
    known_s = max(once_bytes / chip.hbm_bytes_per_s, flops / peak_ops_per_s(trace.mxu_dtype, chip))
    moved_s = min(listed_bytes, trace.io_bytes) / chip.hbm_bytes_per_s
    return (known_s or moved_s) / chip.num_cores * 1e6


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
