"""The *fast* question: microseconds of a compiled candidate, and what they are made of."""

from math import prod

from autotune.chip import ChipInfo
from autotune.compiled import Compiled
from autotune.dtype import bits
from autotune.outcome import Estimate, Estimated, NotEstimated
from autotune.roofline import roofline
from autotune.trace.model import Operand, Trace
from autotune.vmem import limit_bytes

MODEL = "schedule simulation"

# When the core waits for less than this share of the time, it is the core that limits.
_WAIT_SHARE = 0.2
# A kernel that keeps HBM busy for at least this share is limited by it rather than by latency.
_MEMORY_SHARE = 0.6


def estimate(trace: Trace, compiled: Compiled, chip: ChipInfo) -> Estimated | NotEstimated:
    """Time from the simulated instruction schedule; no number where that was refused."""
    if compiled.simulation is None:
        return NotEstimated(
            reason=compiled.refusal,
            vmem_used_bytes=compiled.vmem_used_bytes,
            program=compiled.program,
        )
    return Estimated(estimate=_from_simulation(trace, compiled, chip), program=compiled.program)


def _from_simulation(trace: Trace, compiled: Compiled, chip: ChipInfo) -> Estimate:
    """Core busy, HBM busy and fill are read off; what none of them covers is latency of each step.

    HBM bytes are the trace's (both cores); the simulated core moves its own share of them.
    Operands that XLA put in VMEM ahead of the call are copied before it, which is added.
    """
    run = compiled.simulation
    assert run is not None
    to_us = 1e6 / run["clock_hz"]
    placed = {index - trace.scalar_operands for index in run["vmem_operands"]}
    copied_bytes = sum(_array_bytes(op) for n, op in enumerate(trace.operands) if n in placed)
    piped_bytes = sum(op.hbm_bytes for n, op in enumerate(trace.operands) if n not in placed)
    rate = roofline(trace, chip).cores * chip.hbm_bytes_per_s / 1e6  # bytes per us
    copy_us, memory_us = copied_bytes / rate, (copied_bytes + piped_bytes) / rate
    time_us = float(run["us_shared"]) + copy_us
    compute_us = (run["bundle_cycles"] + run["stall_cycles"]) * to_us
    fill_us = run["fill_cycles"] * to_us + copy_us
    notes = [*run["notes"], *trace.notes]
    if copied_bytes:
        notes.append(
            f"XLA puts {copied_bytes / 2**20:.2f} MiB of operands in VMEM ahead of the call: "
            f"{copy_us:.1f} us for that copy are in the time"
        )
    return Estimate(
        time_us=time_us,
        compute_us=compute_us,
        memory_us=memory_us,
        overhead_us=max(0.0, time_us - max(compute_us, memory_us) - fill_us),
        fill_us=fill_us,
        limited_by=_limit(time_us, compute_us, memory_us, fill_us),
        model=MODEL,
        vmem_used_bytes=compiled.vmem_used_bytes,
        vmem_allowed_bytes=limit_bytes(trace.vmem_limit_bytes, chip),
        hbm_bytes=copied_bytes + piped_bytes,
        flops=trace.mxu_flops,
        notes=tuple(notes),
    )


def _array_bytes(operand: Operand) -> int:
    return prod(operand.shape) * bits(operand.dtype) // 8


def _limit(time_us: float, compute_us: float, memory_us: float, fill_us: float) -> str:
    """What to change first to make this candidate faster."""
    waiting_us = time_us - compute_us
    if waiting_us < _WAIT_SHARE * time_us:
        return "compute"
    if fill_us > waiting_us / 2:
        return "pipeline fill"
    return "HBM" if memory_us >= _MEMORY_SHARE * time_us else "step overhead"
