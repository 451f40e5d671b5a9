"""What a candidate will take when the cost of its steps is known, without the compiler.

A prediction decides what is compiled next. It is never an estimate: those come from a listing.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from math import ceil, log2, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.domain.key import Chip, ChipInfo
from autotune.domain.trace import Operand, Trace
from autotune.estimating.legality import split_axis
from autotune.estimating.roofline import peak_ops_per_s
from autotune.estimating.simulator import constants, dma

MOST_STEPS = 192  # that are replayed; the others repeat the last periods
_ISSUE_CYCLES = 20.0  # from the reads of the next step to the wait for one's own, as in listings
_STEP_US = 0.15  # of scalar work in a step, about

StepFacts = tuple[tuple[str, float], ...]
Array = NDArray[np.float64]
_Which = tuple[bool, int]


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
    for number, operand in enumerate(trace.operands):
        if not operand.is_pipelined:
            continue
        facts[f"{number} fetches"] = log2(max(1, operand.fetches) / steps)
        facts.update(_block_facts(number, operand.shape, operand.block))
    return tuple(facts.items())


@lru_cache(maxsize=1024)  # candidates of a problem have few different blocks of an operand
def _block_facts(number: int, shape: tuple[int, ...], blocks: tuple[int, ...]) -> StepFacts:
    facts = {}
    for place, (size, block) in enumerate(zip(shape, blocks, strict=True)):
        facts[f"{number}.{place}"] = log2(max(1, block))
        facts[f"{number}.{place} cut={size % block > 0}"] = 1.0
    facts[f"{number} lanes={shape[-1:] and shape[-1] % 128 == 0}"] = 1.0
    return tuple(facts.items())


class Pipeline(NamedTuple):
    """What the grid of a call moves on one core. ``moves``: by whether it is an output and the
    number of the operand, the bytes that go with each of the first steps, 0.0 where its block
    stays; ``strides``: for how many steps it does."""

    steps: int
    moves: Mapping[_Which, Array]
    strides: tuple[int, ...]


def pipeline(trace: Trace, chip: ChipInfo, in_vmem: Collection[int] = ()) -> Pipeline:
    """Without the operands that are ``in_vmem`` ahead of the call."""
    grid = _of_one_core(trace, chip)
    moved = {
        (operand.is_output, number): operand
        for number, operand in enumerate(trace.operands)
        if operand.is_pipelined and number not in in_vmem
    }
    moves = {which: _moved(operand, trace.grid, grid) for which, operand in moved.items()}
    return Pipeline(prod(grid), moves, tuple(_stride(operand, grid) for operand in moved.values()))


def predicted_us(calls: Sequence[Pipeline], core_us: Array, chip: Chip, libtpu: str) -> Array:
    """Of one run of each call whose steps take ``core_us`` each without waits: the DMAs of its
    pipeline, as the grid and the blocks have them, timed as those of a listing are."""
    known = constants.load(chip.value, libtpu)
    steps, cycles = np.array([call.steps for call in calls]), core_us * known.clock_hz / 1e6
    waited = _waited(calls, cycles, dma.shared(known))
    end = steps * cycles + waited[-1]
    for place, call in enumerate(calls):
        if call.steps > MOST_STEPS:
            period = max([n for n in call.strides if 2 * n < MOST_STEPS], default=1)
            whole = MOST_STEPS // 2 // period * period
            last = waited[MOST_STEPS - 1, place] - waited[MOST_STEPS - 1 - whole, place]
            end[place] += last / whole * (call.steps - MOST_STEPS)
    return np.asarray(end / known.clock_hz * 1e6)


def _waited(calls: Sequence[Pipeline], cycles: Array, channel: dma.Channel) -> Array:
    """[steps + 1, calls]: how long each core has waited when a step begins, and at the end. As the
    compiler lays out a pipeline: the reads of the next step first, then the wait for one's own,
    the work, the write, and the wait for the write before it."""
    last = np.minimum([call.steps for call in calls], MOST_STEPS)
    kinds = sorted({which for call in calls for which in call.moves})
    moved = {kind: _side_by_side(calls, kind) for kind in kinds}
    reads, writes = ([k for k in kinds if k[0] is is_output] for is_output in (False, True))
    cores, waited = _Cores(channel, len(calls)), []
    for read in reads:
        cores.issue(read, moved[read][0], 0.0 * cycles)
    for step in range(last.max()):
        clock = step * cycles
        waited.append(cores.waited)
        issued = [cores.issue(read, moved[read][step + 1], clock) for read in reads]
        for arrived in issued:
            cores.wait(arrived, clock + _ISSUE_CYCLES)
        for write in writes:
            before = cores.issue(write, moved[write][step], clock + cycles)
            cores.wait(np.where(moved[write][step] > 0.0, before, 0.0), clock + cycles)
    for write in writes:
        cores.wait(cores.arrived(write), last * cycles)
    return np.array([*waited, cores.waited])


def _side_by_side(calls: Sequence[Pipeline], which: _Which) -> Array:
    """[steps, calls]"""
    costs = np.zeros((MOST_STEPS + 1, len(calls)))
    for place, call in enumerate(calls):
        if which in call.moves:
            costs[: len(call.moves[which]), place] = call.moves[which]
    return costs


class _Cores:
    """``dma.replay`` of many calls side by side, each with a core and a channel of its own. Where
    one moves nothing, nothing changes for it."""

    def __init__(self, channel: dma.Channel, count: int) -> None:
        self._channel, self._arrived = channel, dict[_Which, Array]()
        self._busy, self._saved, self.waited = np.zeros((3, count))
        self._mix = dma.Mix(*np.zeros((3, count)))

    def arrived(self, which: _Which) -> Array:
        """When the last DMA of an operand arrived."""
        return self._arrived.get(which, np.zeros_like(self._busy))

    def issue(self, which: _Which, size: Array, clock: Array) -> Array:
        """When the DMA before it arrived. ``clock`` does not know the waits so far."""
        channel, before = self._channel, self.arrived(which)
        begun = np.maximum(clock + self.waited, self._busy)
        self._mix = self._mix.after(size, size * which[0])
        size = size * channel.turns(self._mix) * (channel.write_cost if which[0] else 1.0)
        slow, took = size, np.zeros_like(size)
        if channel.saved_share:
            saved = self._saved + (begun - self._busy) * channel.bytes_per_cycle
            saved = np.minimum(saved, channel.saved_share * dma.LARGEST_BURST_BYTES)
            fast = np.minimum(size, saved / channel.saved_share)
            self._saved = saved - fast * channel.saved_share
            slow, took = size - fast, fast / channel.burst_bytes_per_cycle
        self._busy = begun + took + slow / channel.bytes_per_cycle
        latency = channel.write_latency if which[0] else channel.late(self._mix, np.minimum)
        self._arrived[which] = np.where(size > 0.0, self._busy + latency, before)
        return before

    def wait(self, arrived: Array, clock: Array) -> None:
        self.waited = np.maximum(self.waited, arrived - clock)


def _of_one_core(trace: Trace, chip: ChipInfo) -> tuple[int, ...]:
    axis = split_axis(trace.grid, trace.dimension_semantics) if chip.num_cores > 1 else None
    return tuple(
        ceil(extent / chip.num_cores) if place == axis else max(1, extent)
        for place, extent in enumerate(trace.grid)
    )


def _stride(operand: Operand, grid: tuple[int, ...]) -> int:
    """For how many steps a block stays."""
    inner = max((axis for axis, varies in enumerate(operand.varies) if varies), default=-1)
    return prod(grid[inner + 1 :])


def _moved(operand: Operand, whole: tuple[int, ...], grid: tuple[int, ...]) -> Array:
    """Bytes that go with each step, ragged edges clipped; fewer where some fetches are skipped. A
    dimension belongs to the first grid axis that has as many blocks. Reads go with the first step
    of a block, writes with the last."""
    steps = np.arange(min(prod(grid), MOST_STEPS + 1))
    places = np.unravel_index(steps, grid)
    share, mean = np.ones(len(steps)), 1.0
    free = [axis for axis, varies in enumerate(operand.varies) if varies]
    for size, block in zip(operand.shape, operand.block, strict=True):
        count = ceil(size / block)
        axis = next((axis for axis in free if whole[axis] == count), None)
        if count == 1 or axis is None:
            continue
        free.remove(axis)
        rest = (size - block * (count - 1)) / block
        share[places[axis] == count - 1] *= rest
        mean *= (count - 1 + rest) / count
    visits = prod(whole) / _stride(operand, whole)
    moves = (steps + operand.is_output) % _stride(operand, grid) == 0
    return np.asarray(moves * share * (operand.hbm_bytes / visits / mean))
