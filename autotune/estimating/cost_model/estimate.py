"""The *fast* question: microseconds of a compiled candidate, and what they are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from autotune.domain import explanation as parts
from autotune.domain.compilers import Compiled
from autotune.domain.explanation import Explanation, OperationTime, StepCost, TimePart
from autotune.domain.key import ChipInfo
from autotune.domain.outcome import CallTime, Estimate, Estimated, NotEstimated, Regime
from autotune.domain.trace import Trace
from autotune.estimating.cost_model.operation import XlaTime, xla_time
from autotune.estimating.cost_model.prediction import step_facts
from autotune.estimating.roofline import least_us, physical_bound_us, roofline
from autotune.estimating.simulator import MODEL
from autotune.estimating.simulator.constants import error_bar, pattern_of, resolution
from autotune.estimating.vmem import limit_bytes, vmem_by_name

# When the core waits for less than this share of the time, it is the core that limits.
_WAIT_SHARE = 0.2

_ROUNDING = 0.01  # of clocks and peaks as they are printed

_LISTED_SHARE, _MOST_LISTED = 0.01, 8  # of XLA's operations, those that are kept by name


def estimate(trace: Trace, compiled: Compiled, chip: ChipInfo) -> Estimated | NotEstimated:
    """Time from the simulated instruction schedules; no number where one was refused."""
    used = max(call.vmem_used_bytes for call in compiled.calls)
    refusal = _refusal(trace, compiled)
    if refusal:
        return NotEstimated(reason=refusal, vmem_used_bytes=used, program=compiled.program)
    calls = zip(trace.calls, compiled.calls, strict=True)
    estimates = [_from_simulation(call, made, chip) for call, made in calls]
    for e in estimates:
        # Listing or trace were misread where the chip's peak rates forbid the time.
        least_us = e.explanation.roofline_us if e.explanation else 0.0
        if e.time_us < least_us * (1 - _ROUNDING):
            return NotEstimated(
                us=e.time_us, least_us=least_us, vmem_used_bytes=used, program=compiled.program
            )
    is_alone = len(estimates) == 1 and trace.runs == 1
    kernels = estimates[0] if is_alone else _together(trace, estimates)
    runs = [call.runs or 1 for call in trace.calls]
    moved = [_moved_bytes(made.simulation or {}) for made in compiled.calls]
    taken = [(e.time_us * n, b * n) for e, b, n in zip(estimates, moved, runs, strict=True)]
    around = xla_time(compiled.schedule, taken, chip)
    return Estimated(
        estimate=_with_xla(kernels, around),
        program=compiled.program,
        step=_step_cost(trace, compiled, chip) if runs == [1] and trace.steps else None,
    )


def _step_cost(trace: Trace, compiled: Compiled, chip: ChipInfo) -> StepCost:
    run = compiled.simulation
    assert run is not None
    return StepCost(
        core_us=_core_us(run) / run["steps"],
        facts=step_facts(trace, chip),
        in_vmem=tuple(sorted(_placed(trace, run))),
    )


def _core_us(run: Mapping[str, Any]) -> float:
    """What the core issues and stalls for."""
    return float((run["bundle_cycles"] + run["stall_cycles"]) / run["clock_hz"] * 1e6)


def _moved_bytes(run: Mapping[str, Any]) -> int:
    return int(run["hbm_bytes_read"] + run["hbm_bytes_written"])


def _with_xla(kernels: Estimate, around: XlaTime) -> Estimate:
    """The operation as a whole. Each part's error counts by its share of the time."""
    explained = kernels.explanation
    assert explained is not None
    late_us = around.kernels_late_us
    spent = ((part, us + late_us * (part == parts.HBM)) for part, us in explained.parts_us)
    parts_us = (*spent, (parts.XLA, around.time_us))
    time_us = kernels.time_us + late_us + around.time_us
    notes = list(kernels.notes)
    if around.unknown:
        names = ", ".join(around.unknown[:_MOST_LISTED])
        notes.append(f"depends on data, counted once: {names}")
    if around.untimed:
        notes.append(f"not timed: {', '.join(around.untimed)}, on other devices or SparseCores")
    error = None
    if kernels.error is not None and around.error is not None:
        around_share = around.time_us / time_us
        error = kernels.error * (1 - around_share) + around.error * around_share
    return replace(
        kernels,
        time_us=time_us,
        xla_us=around.time_us,
        hbm_bytes=kernels.hbm_bytes + around.hbm_bytes,
        operations=_longest(around.operations, time_us),
        error=error,
        notes=tuple(notes),
        explanation=replace(explained, parts_us=parts_us),
    )


def _longest(operations: Sequence[OperationTime], time_us: float) -> tuple[OperationTime, ...]:
    """Those that are worth a line, in the order of the schedule."""
    worth = [operation for operation in operations if operation.time_us >= _LISTED_SHARE * time_us]
    most = sorted(worth, key=lambda operation: -operation.time_us)[:_MOST_LISTED]
    return tuple(operation for operation in worth if operation in most)


def _refusal(trace: Trace, compiled: Compiled) -> str:
    """Of the first call that has no simulation; it is named where there are several."""
    for number, (call, made) in enumerate(zip(trace.calls, compiled.calls, strict=True), 1):
        if made.simulation is None:
            place = f"call {number} of {len(trace.calls)}, {call.name}: " if trace.more else ""
            return place + made.refusal
    return ""


def _together(trace: Trace, estimates: Sequence[Estimate]) -> Estimate:
    """Calls one after the other, each as often as it runs. What is no sum is that of the longest;
    the error bar is the widest, VMEM that of the one which has the least left."""
    runs = [call.runs or 1 for call in trace.calls]
    each = list(zip(estimates, runs, strict=True))
    longest = max(each, key=lambda pair: pair[0].time_us * pair[1])[0]
    fullest = max(estimates, key=lambda e: e.vmem_used_bytes / max(e.vmem_allowed_bytes, 1))
    names = [call.name for call in trace.calls]
    errors = [e.error for e in estimates]
    return replace(
        longest,
        **{name: sum(getattr(e, name) * n for e, n in each) for name in _SUMMED},
        vmem_used_bytes=fullest.vmem_used_bytes,
        vmem_allowed_bytes=fullest.vmem_allowed_bytes,
        error=None if None in errors else max(e for e in errors if e is not None),
        resolution=max(e.resolution for e in estimates),
        explanation=_explained_together([(e.explanation, n) for e, n in each]),
        notes=tuple(
            f"{name}: {note}" for name, e in zip(names, estimates, strict=True) for note in e.notes
        ),
        calls=tuple(
            CallTime(
                name=name,
                runs=n,
                time_us=e.time_us * n,
                limited_by=e.limiting_part,
                vmem_used_bytes=e.vmem_used_bytes,
            )
            for name, (e, n) in zip(names, each, strict=True)
        ),
    )


_SUMMED = ("time_us", "compute_us", "memory_us", "overhead_us", "fill_us", "hbm_bytes", "flops")


def _explained_together(explanations: Sequence[tuple[Explanation | None, int]]) -> Explanation:
    each = [(e, n) for e, n in explanations if e is not None]
    dmas = sum(e.dma_count * n for e, n in each)
    return Explanation(
        parts_us=tuple(
            (name, sum(e.part_us(name) * n for e, n in each)) for name, _ in each[0][0].parts_us
        ),
        roofline_us=sum(e.roofline_us * n for e, n in each),
        mxu_us=sum(e.mxu_us * n for e, n in each),
        steps=sum(e.steps * n for e, n in each),
        dma_count=dmas,
        burst_bytes=sum(e.burst_bytes * e.dma_count * n for e, n in each) // max(1, dmas),
        least_hbm_bytes=sum(e.least_hbm_bytes * n for e, n in each),
        vmem=max((e.vmem for e, _ in each), key=lambda vmem: sum(size for _, size in vmem)),
        spill_bundles=sum(e.spill_bundles for e, _ in each),
        least_us=sum(e.least_us * n for e, n in each),
    )


def _from_simulation(trace: Trace, compiled: Compiled, chip: ChipInfo) -> Estimate:
    """HBM bytes are the trace's (both cores), or what the simulated core moves where the kernel
    itself says what that is. Operands that XLA put in VMEM ahead of the call move none.
    """
    run = compiled.simulation
    assert run is not None
    placed = _placed(trace, run)
    moved = [op for n, op in enumerate(trace.operands) if n not in placed]
    cores = roofline(replace(trace, runs=1, more=()), chip).cores
    hbm_bytes = sum(op.hbm_bytes for op in moved)
    if any(op.space in ("any", "hbm") for op in moved):  # what it needs of them is in its listing
        hbm_bytes = _moved_bytes(run) * cores
    explained = _explanation(trace, run, chip)
    limit = regime(run["parts"])
    return Estimate(
        time_us=float(run["us_shared"]),
        compute_us=_core_us(run),
        memory_us=hbm_bytes / (cores * chip.hbm_bytes_per_s) * 1e6,
        overhead_us=explained.part_us(parts.SCALAR) + explained.part_us(parts.LATENCY),
        fill_us=explained.part_us(parts.FILL),
        limited_by=limit,
        model=MODEL,
        vmem_used_bytes=compiled.vmem_used_bytes,
        vmem_allowed_bytes=limit_bytes(trace.vmem_limit_bytes, chip),
        hbm_bytes=hbm_bytes,
        flops=trace.mxu_flops,
        notes=(*run["notes"], *trace.notes),
        error=error_bar(
            chip.chip.value,
            dict(explained.parts_us),
            run["steps"],
            timed_as=pattern_of(trace.name),
            links_share=min(1.0, run["link_cycles"] / max(1, run["cycles_shared"])),
            is_fitted=run["is_fitted"],
        ),
        resolution=resolution(limit),
        explanation=explained,
    )


def _placed(trace: Trace, run: Mapping[str, Any]) -> set[int]:
    """Operands that XLA put in VMEM ahead of the call: they move no bytes in it."""
    return {index - trace.scalar_operands for index in run["vmem_operands"]}


def _explanation(trace: Trace, run: Mapping[str, Any], chip: ChipInfo) -> Explanation:
    to_us, cycles = 1e6 / run["clock_hz"], run["parts"]
    moved = _moved_bytes(run), _placed(trace, run)
    return Explanation(
        parts_us=tuple((part, cycles[part] * to_us) for part in parts.PARTS if part in cycles),
        roofline_us=physical_bound_us(trace, chip, *moved),
        mxu_us=run["mxu_busy_cycles"] * to_us,
        steps=run["steps"],
        dma_count=run["dma_count"],
        burst_bytes=run["burst_bytes"],
        least_hbm_bytes=trace.io_bytes,
        vmem=vmem_by_name(trace, chip),
        spill_bundles=run["spill_bundles"],
        least_us=least_us(trace, chip, *moved),
    )


def regime(cycles: Mapping[TimePart, int]) -> Regime:
    """Which error bar holds: what the core waits for where it waits much, else what it does."""
    waits = {
        Regime.HBM: cycles[parts.HBM],
        Regime.STEP_OVERHEAD: cycles[parts.LATENCY],
        Regime.PIPELINE_FILL: cycles[parts.FILL],
        Regime.LINKS: cycles.get(parts.LINKS, 0),
    }
    waited = sum(waits.values())
    busy = sum(cycles.values()) - waited
    if waited >= _WAIT_SHARE * (waited + busy):
        return max(waits, key=lambda name: waits[name])
    return Regime.STEP_OVERHEAD if cycles[parts.SCALAR] > busy / 2 else Regime.COMPUTE
