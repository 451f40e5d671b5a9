"""The *fast* question: microseconds of a compiled candidate, and what they are made of."""

from collections.abc import Mapping
from math import prod
from typing import Any

from autotune.candidates.roofline import roofline
from autotune.candidates.vmem import limit_bytes, vmem_by_name
from autotune.domain import explanation as parts
from autotune.domain.chip import ChipInfo
from autotune.domain.compiled import Compiled
from autotune.domain.dtype import bits
from autotune.domain.explanation import Explanation
from autotune.domain.outcome import Estimate, Estimated, NotEstimated
from autotune.domain.trace import Operand, Trace
from autotune.simulator import Parts
from autotune.simulator.constants import error_bar, resolution

MODEL = "schedule simulation 3"  # the number grows when the same listing gets another time

# When the core waits for less than this share of the time, it is the core that limits.
_WAIT_SHARE = 0.2


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
    """HBM bytes are the trace's (both cores); the simulated core moves its own share of them.

    Operands that XLA put in VMEM ahead of the call are copied before it, which is added.
    """
    run = compiled.simulation
    assert run is not None
    placed = {index - trace.scalar_operands for index in run["vmem_operands"]}
    copied_bytes = sum(_array_bytes(op) for n, op in enumerate(trace.operands) if n in placed)
    piped_bytes = sum(op.hbm_bytes for n, op in enumerate(trace.operands) if n not in placed)
    rate = roofline(trace, chip).cores * chip.hbm_bytes_per_s / 1e6  # bytes per us
    copy_us, memory_us = copied_bytes / rate, (copied_bytes + piped_bytes) / rate
    explained = _explanation(trace, run, chip, copy_us)
    limit = limited_by(Parts(**run["parts"]), copies=copy_us * run["clock_hz"] / 1e6)
    notes = [*run["notes"], *trace.notes]
    if copied_bytes:
        notes.append(
            f"XLA puts {copied_bytes / 2**20:.2f} MiB of operands in VMEM ahead of the call: "
            f"{copy_us:.1f} us for that copy are in the time"
        )
    return Estimate(
        time_us=float(run["us_shared"]) + copy_us,
        compute_us=(run["bundle_cycles"] + run["stall_cycles"]) / run["clock_hz"] * 1e6,
        memory_us=memory_us,
        overhead_us=explained.part_us(parts.SCALAR) + explained.part_us(parts.LATENCY),
        fill_us=explained.part_us(parts.FILL) + copy_us,
        limited_by=limit,
        model=MODEL,
        vmem_used_bytes=compiled.vmem_used_bytes,
        vmem_allowed_bytes=limit_bytes(trace.vmem_limit_bytes, chip),
        hbm_bytes=copied_bytes + piped_bytes,
        flops=trace.mxu_flops,
        notes=tuple(notes),
        error=error_bar(chip.chip.value, limit),
        resolution=resolution(limit),
        explanation=explained,
    )


def _explanation(
    trace: Trace, run: Mapping[str, Any], chip: ChipInfo, copy_us: float
) -> Explanation:
    to_us, cycles = 1e6 / run["clock_hz"], run["parts"]
    by_name = {
        parts.ISSUE: cycles["vector"],
        parts.SCALAR: cycles["scalar"],
        parts.MATRIX: cycles["matrix_stall"],
        parts.LANES: cycles["lane_stall"],
        parts.HBM: cycles["hbm_wait"],
        parts.LATENCY: cycles["latency_wait"],
        parts.FILL: cycles["fill"],
    }
    in_us = {name: count * to_us for name, count in by_name.items()}
    return Explanation(
        parts_us=tuple({**in_us, parts.COPIES: copy_us}.items()),
        roofline_us=roofline(trace, chip).bound_us,
        mxu_us=run["mxu_busy_cycles"] * to_us,
        steps=run["steps"],
        dma_count=run["dma_count"],
        burst_bytes=run["burst_bytes"],
        least_hbm_bytes=trace.io_bytes,
        vmem=vmem_by_name(trace, chip),
        spill_bundles=run["spill_bundles"],
    )


def _array_bytes(operand: Operand) -> int:
    return prod(operand.shape) * bits(operand.dtype) // 8


def limited_by(cycles: Parts, copies: float = 0.0) -> str:
    """What to change first to make this candidate faster; ``copies``: cycles of copies by XLA."""
    waits = {
        "HBM": cycles.hbm_wait,
        "step overhead": cycles.latency_wait,
        "pipeline fill": cycles.fill + copies,
    }
    busy = cycles.vector + cycles.scalar + cycles.matrix_stall + cycles.lane_stall
    if sum(waits.values()) >= _WAIT_SHARE * (sum(waits.values()) + busy):
        return max(waits, key=lambda name: waits[name])
    return "step overhead" if cycles.scalar > busy / 2 else "compute"
