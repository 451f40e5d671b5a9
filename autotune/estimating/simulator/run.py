"""Run a listing: parse, slice, walk, replay the DMAs, extrapolate."""

from __future__ import annotations

import math

from autotune.domain.explanation import FILL, HBM, LATENCY, TimePart
from autotune.estimating.simulator import constants, dma, extrapolation
from autotune.estimating.simulator.bundles import DYNAMIC_BOUND, Listing, parse
from autotune.estimating.simulator.dma import Fill, RunningTotals, Timeline
from autotune.estimating.simulator.extrapolation import Recording
from autotune.estimating.simulator.graph import connect
from autotune.estimating.simulator.lowering import BLOCK, STEP, Emit, Event, check_scalars, lower
from autotune.estimating.simulator.memory import Scalars
from autotune.estimating.simulator.outcome import NotSimulated, Simulation, UnfitError
from autotune.estimating.simulator.slicing import cut
from autotune.estimating.simulator.stalls import price

MOST_BLOCKS = 4_000_000  # about two seconds; a loop that needs more is refused
ON_CHIP = ("vmem", "cmem")  # where XLA may place operands before the call
MOSTLY = 0.5  # of the bundles: what is worth a note
FEWEST_STEPS = 3  # below it there is no step between filling and draining the pipeline


def simulate(
    listing: str | Listing,
    *,
    chip: str,
    libtpu: str | None = None,
    scalars: Scalars | None = None,
    links: bool = True,
    is_fused: bool = False,
    is_plain: bool = False,
) -> Simulation | NotSimulated:
    """Return the predicted time of the Pallas call of a ``final_bundles`` listing.

    ``libtpu``: the version that made it; constants of the nearest series are used. ``scalars``
    holds the contents of scalar-prefetch operands by operand index. ``links``: whether what goes to
    other devices takes time on them. ``is_fused``: XLA has made the code of itself,
    ``is_plain``: for a program of plain XLA. A long run is stopped when its periods have settled
    and extrapolated from there.
    """
    try:
        parsed = parse(listing)
        is_packed = is_fused and not is_plain and parsed.is_packed_transpose
        ways = {"is_fused": is_fused, "is_plain": is_plain, "is_packed": is_packed}
        known = constants.load(chip, libtpu, **ways)
        known = known if links else known.without_links()
        return _simulate(parsed, known, libtpu, scalars or {})
    except UnfitError as reason:
        return NotSimulated(str(reason), reason.operand)


def _simulate(
    listing: Listing, chip: constants.ChipConstants, libtpu: str | None, scalars: Scalars
) -> Simulation:
    recording, line, drift = settle(listing, chip, scalars)
    end = extrapolation.finish(line, recording, listing)
    if not end.reads + end.writes and any(o.memory == "hbm" for o in listing.operands):
        raise UnfitError("operands are in HBM and the kernel issued no DMA")
    return Simulation(
        cycles_shared=round(end.cycles),
        us_shared=end.cycles / chip.clock_hz * 1e6,
        parts=_parts(end, line.fill),
        steps=recording.grid_steps(listing),
        dma_count=round(end.reads + end.writes),
        hbm_bytes_read=round(end.read_bytes),
        hbm_bytes_written=round(end.written_bytes),
        bundle_cycles=round(end.bundles),
        stall_cycles=round(end.walked - end.bundles),
        link_cycles=round(max(end.linked, end.linking)),
        burst_bytes=round((end.read_bytes + end.written_bytes) / max(end.bursts, 1)),
        mxu_busy_cycles=round(end.mxu),
        spill_bundles=listing.spill_bundles,
        vmem_operands=tuple(sorted(o.number for o in listing.operands if o.memory in ON_CHIP)),
        clock_hz=chip.clock_hz,
        constants=chip.libtpu,
        is_fitted=_is_fitted(chip, libtpu),
        notes=(*_notes(listing, chip, libtpu, recording), *extrapolation.notes(recording, drift)),
    )


def settle(
    listing: Listing, chip: constants.ChipConstants, scalars: Scalars
) -> tuple[Recording, Timeline, float]:
    """Walk until the periods have settled or the stages are used up; the drift that is left.
    Raises ``UnfitError`` where that is too much."""
    for max_steps in extrapolation.STAGES:
        recording = record(listing, chip, scalars, max_steps)
        line = dma.replay(recording.events, dma.shared(chip), recording.final)
        drift = extrapolation.drift(line, recording, listing)
        if drift <= extrapolation.SETTLED:
            break
    if drift > extrapolation.UNSETTLED:
        raise UnfitError(
            f"after {recording.passes:,} passes of its loop, periods still differ by {drift:.0%}"
        )
    return recording, line, drift


def record(
    listing: Listing,
    chip: constants.ChipConstants,
    scalars: Scalars,
    max_steps: int,
    watch: Emit | None = None,
) -> Recording:
    """Walk the kernel; UnfitError where the walk does not end.

    ``watch`` is told of every STEP and BLOCK, for a picture of the run.
    """
    part = cut(listing, scalars)
    check_scalars(part, scalars, dynamic_grid=DYNAMIC_BOUND in listing.grid)
    graph = connect(listing, chip.delay_slots)
    costs, is_watched = price(listing, chip), watch is not None
    walk = lower(listing, graph, part, costs, scalars, chip, tell_blocks=is_watched)
    events: list[Event] = []
    emit = events.append if watch is None else _fork(events, watch)
    clock, work, left, endless = walk(emit, max(max_steps, FEWEST_STEPS), MOST_BLOCKS)
    if endless:
        raise UnfitError(f"the kernel does not end within {MOST_BLOCKS} basic blocks")
    passes = sum(1 for event in events if event[3] == STEP) - (left is not None)
    return Recording(events, (clock, 0, 0, STEP, work), passes, left)


def _fork(events: list[Event], watch: Emit) -> Emit:
    def emit(event: Event) -> None:
        if event[3] in (STEP, BLOCK):
            watch(event)
        if event[3] != BLOCK:
            events.append(event)

    return emit


def _parts(end: RunningTotals, fill: Fill) -> dict[TimePart, int]:
    waited = max(0.0, end.waited - fill.waited)
    latency = min(waited, max(0.0, end.latency_waited - fill.latency_waited))
    waits = {HBM: waited - latency, LATENCY: latency, FILL: end.waited - waited}
    return {part: round(cycles) for part, cycles in {**end.parts(), **waits}.items()}


def _is_fitted(chip: constants.ChipConstants, libtpu: str | None) -> bool:
    return libtpu is None or (libtpu + ".").startswith(chip.libtpu + ".")


def _notes(
    listing: Listing, chip: constants.ChipConstants, libtpu: str | None, recording: Recording
) -> tuple[str, ...]:
    notes = []
    if not _is_fitted(chip, libtpu):
        notes.append(
            f"constants of {chip.name} are known for libtpu {chip.libtpu}, the nearest to {libtpu}"
        )
    if chip.stalls is None:
        notes.append(f"{chip.name}: bundles alone: libtpu gives no estimate of its stalls")
    spilled = listing.spill_bundles / max(1, len(listing.bundles))
    if spilled > MOSTLY:
        notes.append(f"{spilled:.0%} of its bundles move spilled registers")
    moved = sorted(o.number for o in listing.operands if o.memory in ON_CHIP)
    if moved:
        notes.append(f"operands {moved} were in VMEM before the call")
    steps = recording.grid_steps(listing)
    if listing.grid and DYNAMIC_BOUND not in listing.grid and math.prod(listing.grid) != steps:
        notes.append(f"the grid is printed as {listing.grid}, the outer loop runs {steps} steps")
    return tuple(notes)
