"""The *fast* question: microseconds of a compiled candidate, and what they are made of."""

from autotune.chip import ChipInfo
from autotune.compiled import Compiled
from autotune.outcome import Estimate, Estimated, NotEstimated
from autotune.roofline import roofline
from autotune.trace.model import Trace
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
    """
    run = compiled.simulation
    assert run is not None
    to_us = 1e6 / run["clock_hz"]
    time_us = float(run["us_shared"])
    compute_us = (run["bundle_cycles"] + run["stall_cycles"]) * to_us
    fill_us = run["fill_cycles"] * to_us
    memory_us = roofline(trace, chip).memory_us
    if run["vmem_operands"]:
        memory_us = 0.0
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
        hbm_bytes=trace.hbm_bytes,
        flops=trace.mxu_flops,
        notes=(*run["notes"], *trace.notes),
    )


def _limit(time_us: float, compute_us: float, memory_us: float, fill_us: float) -> str:
    """What to change first to make this candidate faster."""
    waiting_us = time_us - compute_us
    if waiting_us < _WAIT_SHARE * time_us:
        return "compute"
    if fill_us > waiting_us / 2:
        return "pipeline fill"
    return "HBM" if memory_us >= _MEMORY_SHARE * time_us else "step overhead"
