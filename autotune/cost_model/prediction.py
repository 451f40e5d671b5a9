"""What a candidate will take when the cost of its steps is known, without the compiler.

A prediction decides what is compiled next. It is never an estimate: those come from a listing.
"""

from collections.abc import Collection, Iterator
from math import ceil, log2, prod

import numpy as np
from numpy.typing import NDArray

from autotune.candidates.roofline import peak_ops_per_s
from autotune.candidates.rules import split_axis
from autotune.domain.chip import ChipInfo
from autotune.domain.trace import Operand, Trace
from autotune.simulator import constants, dma
from autotune.simulator.lowering import HBM_READ, HBM_WRITE, STEP, WAITED, CoreWork, Event

MOST_STEPS = 192  # that are replayed; the others repeat the last periods
_ISSUE_CYCLES = 20.0  # from the reads of the next step to the wait for one's own, as in listings
_NO_WORK = CoreWork(0, 0, 0, 0)
_STEP_US = 0.15  # of scalar work in a step, about

StepFacts = tuple[tuple[str, float], ...]
Bytes = NDArray[np.float64]


def step_facts(trace: Trace, chip: ChipInfo) -> StepFacts:
    """What decides the cost of a step of a call, for any kernel and shape: numbers as logarithms to
    base 2; names with an equals sign are flags. ``core_us``: what a step takes by its arithmetic at
    peak rates, which the cost is learned in proportion to."""
    steps = max(1, trace.steps)  # 0 where a bound depends on data
    peak_us = trace.mxu_flops / steps / peak_ops_per_s(trace.mxu_dtype, chip) * 1e6
    facts = {
        "core_us": peak_us + _STEP_US,
        "flops": log2(trace.mxu_flops / steps + 1),
        "vector": log2(trace.vector_ops / steps + 1),
        **{f"one{axis}={extent == 1}": 1.0 for axis, extent in enumerate(trace.grid)},
    }
    for number, one in enumerate(trace.operands):
        if not one.is_pipelined:
            continue
        facts[f"{number} fetches"] = log2(max(1, one.fetches) / steps)
        for place, (size, block) in enumerate(zip(one.shape, one.block, strict=True)):
            facts[f"{number}.{place}"] = log2(max(1, block))
            facts[f"{number}.{place} cut={size % block > 0}"] = 1.0
        facts[f"{number} lanes={one.shape[-1:] and one.shape[-1] % 128 == 0}"] = 1.0
    return tuple(facts.items())


def predicted_us(
    trace: Trace,
    core_us: float,
    chip: ChipInfo,
    libtpu: str,
    in_vmem: Collection[int] = (),
) -> float:
    """Of one run of a call whose steps take ``core_us`` each without waits: the DMAs of its
    pipeline, as the grid and the blocks have them, replayed as those of a listing are."""
    known = constants.load(chip.chip.value, libtpu)
    grid = _of_one_core(trace, chip)
    steps, cycles = prod(grid), core_us * known.clock_hz / 1e6
    moved = [
        (2 * number, one, _bytes(one, trace.grid, grid), _stride(one, grid))
        for number, one in enumerate(trace.operands)
        if one.is_pipelined and number not in in_vmem
    ]
    events = list(_events(moved, min(steps, MOST_STEPS), steps, cycles, known.granule_bytes))
    final = (min(steps, MOST_STEPS) * cycles, 0.0, 0.0, STEP, _NO_WORK)
    line = dma.replay(events, dma.shared(known), final)
    end = line.end.cycles
    if steps > MOST_STEPS:
        period = max([n for _, _, _, n in moved if 2 * n < MOST_STEPS], default=1)
        whole = MOST_STEPS // 2 // period * period
        last, before = line.points[-1].cycles, line.points[-1 - whole].cycles
        end += (last - before) / whole * (steps - MOST_STEPS)
    return end / known.clock_hz * 1e6


def _of_one_core(trace: Trace, chip: ChipInfo) -> tuple[int, ...]:
    axis = split_axis(trace.grid, trace.dimension_semantics) if chip.num_cores > 1 else None
    return tuple(
        ceil(extent / chip.num_cores) if place == axis else max(1, extent)
        for place, extent in enumerate(trace.grid)
    )


def _stride(one: Operand, grid: tuple[int, ...]) -> int:
    """For how many steps a block stays."""
    inner = max((axis for axis, varies in enumerate(one.varies) if varies), default=-1)
    return prod(grid[inner + 1 :])


def _bytes(one: Operand, whole: tuple[int, ...], grid: tuple[int, ...]) -> Bytes:
    """What the block of each step has, ragged edges clipped; fewer where some fetches are skipped.
    A dimension belongs to the first grid axis that has as many blocks."""
    steps = min(prod(grid), MOST_STEPS + 1)
    places = np.unravel_index(np.arange(steps), grid)
    share, mean = np.ones(steps), 1.0
    free = [axis for axis, varies in enumerate(one.varies) if varies]
    for size, block in zip(one.shape, one.block, strict=True):
        count = ceil(size / block)
        axis = next((axis for axis in free if whole[axis] == count), None)
        if count == 1 or axis is None:
            continue
        free.remove(axis)
        rest = (size - block * (count - 1)) / block
        share[places[axis] == count - 1] = rest
        mean *= (count - 1 + rest) / count
    visits = prod(whole) / _stride(one, whole)
    return np.asarray(share * (one.hbm_bytes / visits / mean))


def _events(
    moved: list[tuple[int, Operand, Bytes, int]], last: int, steps: int, cycles: float, unit: int
) -> Iterator[Event]:
    """As the compiler lays out a pipeline: the reads of the next step first, then the wait for
    one's own, the work, the write, and the wait for the write before it."""
    reads = [one for one in moved if not one[1].is_output]
    writes = [one for one in moved if one[1].is_output]
    written: dict[int, float] = {}

    def fetch(step: int, clock: float) -> Iterator[Event]:
        for semaphore, _, sizes, stride in reads:
            if step % stride == 0:
                yield clock, sizes[step] / unit, semaphore, HBM_READ, (0.0,)

    yield from fetch(0, 0.0)
    for step in range(last):
        clock = step * cycles
        yield clock, 0.0, 0.0, STEP, _NO_WORK
        if step + 1 < steps:
            yield from fetch(step + 1, clock)
        for semaphore, _, sizes, stride in reads:
            if step % stride == 0:
                yield clock + _ISSUE_CYCLES, sizes[step] / unit, semaphore, WAITED, ()
        for semaphore, _, sizes, stride in writes:
            if (step + 1) % stride == 0:
                amount = sizes[step] / unit
                yield clock + cycles, amount, semaphore + 1, HBM_WRITE, (0.0,)
                if semaphore in written:
                    yield clock + cycles, written[semaphore], semaphore + 1, WAITED, ()
                written[semaphore] = amount
    for semaphore, amount in written.items():
        yield last * cycles, amount, semaphore + 1, WAITED, ()
