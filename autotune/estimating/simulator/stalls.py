"""Interlock stalls of the matrix, cross-lane and transcendental units, added to the bundles.

One in-order pass over the listing in address order, with state carried across blocks. All times
are cycles. What a unit does was found from libtpu's static estimate of kernels of one step, where
stalls add up exactly (benchmarks/calibration/constants.py);
:class:`autotune.estimating.simulator.constants.StallModel` names the constants.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

from autotune.estimating.simulator.bundles import Bundle, Listing, Operation
from autotune.estimating.simulator.constants import ChipConstants, StallModel, element_kind
from autotune.estimating.simulator.outcome import UnfitError

# unit ("mxu0"), address of the bundle, then cycles of the pass: begun, free again
Watch = Callable[[str, int, float, float], None]

_UNIT = re.compile(r"(?:\[(\d{1,4})\])?\.(mxu|xlu)(\d)\b")
_WIDTH = re.compile(r"width=(\d{1,4})\b")
_MATCH = re.compile(r"%\w+")
_ROWS = 8  # sublanes of a register: what one pop of a transpose yields
_LANES = 128
_PUSHED_ROWS = {"f32": 8, "bf16": 16, "int8": 32}  # of weights, by one push


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Cumulative cycles before each bundle issues: all stalls, those that wait for a cross-lane or
    transcendental result, and what the MXUs are asked for. Each holds [bundles + 1] numbers."""

    stalls_before: tuple[float, ...]
    lane_stalls_before: tuple[float, ...]
    mxu_before: tuple[float, ...]  # mean over the core's MXUs
    late: tuple[str, ...] = ()  # by bundle: the operation that it stalls for, or its last product

    def clock(self, start: int, address: int) -> float:
        """Return the cycle at which ``address`` issues, counted from the block start."""
        stalls = self.stalls_before[address + 1] - self.stalls_before[start]
        return round(address - start + stalls, 3)

    def lane_stalls(self, start: int, stop: int) -> float:
        """Return the cross-lane stalls of the bundles ``start`` to ``stop`` (exclusive)."""
        return round(self.lane_stalls_before[stop] - self.lane_stalls_before[start], 3)

    def mxu(self, start: int, stop: int) -> float:
        """Return the MXU cycles of the bundles ``start`` to ``stop`` (exclusive)."""
        return round(self.mxu_before[stop] - self.mxu_before[start], 3)


def price(listing: Listing, chip: ChipConstants, watch: Watch | None = None) -> Costs:
    """Return the cost of every bundle of the listing on this chip.

    ``watch`` is told how long each operation of an MXU or XLU of a kernel occupies it. In its clock
    the bundle ``a`` would issue at ``a + 1 + stalls_before[a]``.
    """
    core = _Core(chip, watch)
    for bundle in listing.bundles:
        core.issue(bundle)
    return Costs(
        stalls_before=tuple(accumulate(core.stalls, initial=0.0)),
        lane_stalls_before=tuple(accumulate(core.lane_stalls, initial=0.0)),
        mxu_before=tuple(accumulate(core.mxu_cycles, initial=0.0)),
        late=tuple(core.late),
    )


class _Core:
    """The units of one core during the pass, and what each bundle cost."""

    def __init__(self, chip: ChipConstants, watch: Watch | None) -> None:
        self._chip, self._watch = chip, watch
        self._now = 0.0  # as libtpu counts
        self._matrix: dict[str, _MatrixUnit] = {}
        self._cross_lane: dict[str, _CrossLaneUnit] = {}
        self._transcendental: dict[str, float] = {}  # id of a push -> result ready
        self.stalls: list[float] = []
        self.lane_stalls: list[float] = []
        self.mxu_cycles: list[float] = []
        self.late: list[str] = []

    def issue(self, bundle: Bundle) -> None:
        """Issue one bundle: it stalls for the slowest of its operations."""
        self._now += 1
        matrix, lane, busy, slower, late = 0.0, 0.0, 0.0, 0.0, ""
        for operation in bundle.operations:
            if not operation.opcode.startswith("v"):
                continue
            if operation.opcode.startswith("vmatmul"):
                cycles = self._chip.matmul_cycles(operation.opcode) / self._chip.mxu_count
                busy += cycles
                slower += cycles * self._filled(operation.opcode)
                late = late if matrix or lane else operation.name
            if self._chip.stalls is None:
                continue
            unit, before = _UNIT.search(operation.opcode), max(matrix, lane)
            if unit is not None and unit[2] == "mxu":
                matrix = max(matrix, self._multiply(operation, unit, self._chip.stalls))
            else:
                lane = max(lane, self._other(operation, unit, self._chip.stalls))
            late = operation.name if max(matrix, lane) > before else late
        stall = max(matrix, lane)
        self._now += stall
        self.stalls.append(stall + slower * self._chip.matrix_slowdown)
        self.lane_stalls.append(stall if lane > matrix else 0.0)
        self.mxu_cycles.append(busy)
        self.late.append(late)

    def _filled(self, opcode: str) -> float:
        """The share of an MXU's rows that hold weights. All, where no push was seen."""
        unit = _UNIT.search(opcode)
        matrix = self._matrix.get(unit[3]) if unit else None
        return min(1.0, ((matrix and matrix.filled(opcode)) or math.inf) / self._chip.mxu_width)

    def _multiply(self, operation: Operation, unit: re.Match[str], model: StallModel) -> float:
        if int(unit[3]) >= self._chip.mxu_count:
            raise UnfitError(f"{self._chip.name} has no mxu{unit[3]}: {operation.opcode}")
        matrix = self._matrix.setdefault(unit[3], _MatrixUnit())
        opcode, index = operation.opcode, int(unit[1]) if unit[1] else None
        if opcode.startswith("vmatmul"):
            stall = matrix.multiply(self._now, opcode, index, self._chip, model)
            self._tell(unit, matrix.free - self._chip.matmul_cycles(opcode), matrix.free)
            return stall
        if opcode.startswith("vpop"):
            return matrix.pop(self._now, index)
        if opcode.startswith("vmatpush"):
            matrix.push(self._now, opcode, model)
        return 0.0

    def _other(self, operation: Operation, unit: re.Match[str] | None, model: StallModel) -> float:
        if unit is not None:
            name = unit[2] + unit[3]
            if name not in model.reduce_latency:
                raise UnfitError(f"{self._chip.name} has no {name}: {operation.opcode}")
            lanes = self._cross_lane.setdefault(name, _CrossLaneUnit(model.reduce_latency[name]))
            before = lanes.free
            stall = lanes.issue(self._now, operation, model)
            if lanes.free != before:
                self._tell(unit, max(self._now, before), lanes.free)
            return stall
        if operation.opcode == "vpop.eup":
            push = _MATCH.search(operation.text)
            ready = self._transcendental.get(push[0], 0.0) if push else 0.0
            return max(0.0, ready - self._now)
        self._transcendental[operation.name] = self._now + model.transcendental_latency
        return 0.0

    def _tell(self, unit: re.Match[str], begun: float, free: float) -> None:
        if self._watch:
            self._watch(unit[2] + unit[3], len(self.stalls), begun, free)


@dataclass(slots=True)
class _MatrixUnit:
    """One MXU: when it is free, when its staged weights are in, and its results on the way."""

    free: float = 0.0
    pushed: float = 0.0
    weights: float = 0.0
    pushes: int = 0  # since weights were loaded last
    staged: int = 0  # the rows of them
    loaded: int = 0  # rows of the weights in use, 0 where no push was seen
    results: deque[float] = field(default_factory=deque)
    accumulators: dict[int, float] = field(default_factory=dict)  # v7x: mrb index -> ready

    def push(self, now: float, opcode: str, model: StallModel) -> None:
        """Stage rows of weights: pushes queue up, issue does not wait for them. Transposed ones
        take twice as long as others of their type, for libtpu those of float32 as well. On v6e
        XLA's own of bfloat16 name none, and have half of its rows: 41 given rows show that."""
        self.pushes += 1
        self.staged += _PUSHED_ROWS[element_kind(opcode)]
        kind, is_transposed, start = element_kind(opcode), ".xpose" in opcode, max(now, self.pushed)
        self.pushed = start + model.push_cycles[kind] * (1 + is_transposed)
        self.weights = start + model.weights_latency["transposed" if is_transposed else kind]

    def filled(self, opcode: str) -> int:
        """The rows of weights that a product uses, which it may load first."""
        if ".vlgmr" in opcode:
            self.loaded, self.staged = self.staged, 0
        return self.loaded

    def multiply(
        self, now: float, opcode: str, index: int | None, chip: ChipConstants, model: StallModel
    ) -> float:
        """Start as soon as unit and weights are ready; issue waits beyond the backlog only."""
        cycles, count = chip.matmul_cycles(opcode), chip.matmul_results(opcode)
        kind, start = element_kind(opcode), max(now, self.free)
        if ".vlgmr" in opcode:
            start = max(start, self.weights) + self.pushes * chip.load_cycles
            self.pushes = 0
        self.free = start + cycles
        first = start + model.matmul_latency[kind]
        ready = [first + cycles * i / count for i in range(count)]
        if index is None:
            self.results.extend(ready)
        else:
            self.accumulators.update({index + i: at for i, at in enumerate(ready)})
        return max(0.0, start - now - model.backlog_cycles[kind])

    def pop(self, now: float, index: int | None) -> float:
        """Take the result in the accumulator ``index``, or the oldest."""
        if index is not None:
            return max(0.0, self.accumulators.get(index, 0.0) - now)
        return max(0.0, self.results.popleft() - now) if self.results else 0.0


@dataclass(slots=True)
class _CrossLaneUnit:
    """One XLU: reductions and rotations one after the other; a transpose goes in and comes out
    row by row, and the next one goes in meanwhile. Units differ: since libtpu 0.0.48 the third of
    three returns a reduction, a rotation or a permutation 24 cycles before the others. To set the
    pattern of permutations takes no time."""

    reduce_latency: float
    free: float = 0.0
    pushed: dict[str, float] = field(default_factory=dict)  # id of a push -> result ready
    transposed: deque[float] = field(default_factory=deque)

    def issue(self, now: float, operation: Operation, model: StallModel) -> float:
        """Return how long the operation stalls. A pop names its push; matching by order is wrong,
        except between the pops of transposes, which name the last push of theirs or none."""
        opcode = operation.opcode
        if opcode.startswith("vpop"):
            return self._pop(now, operation)
        if opcode.startswith("vxpose"):
            return self._transpose(now, operation, model)
        if opcode.startswith("vset"):
            return 0.0
        start = max(now, self.free)
        self.free = start + model.lane_cycles
        reduces = ".xlane" in opcode
        earlier = 0 if reduces else model.reduce_latency["xlu0"] - model.rotate_latency
        latency = self.reduce_latency - earlier
        self.pushed[operation.name] = start + latency
        return max(0.0, start - now - model.lane_queue_cycles) if reduces else 0.0

    def _pop(self, now: float, operation: Operation) -> float:
        push = _MATCH.search(operation.text)
        if operation.opcode.startswith("vpop.trf"):
            return max(0.0, self.transposed.popleft() - now) if self.transposed else 0.0
        return max(0.0, self.pushed.get(push[0], 0.0) - now) if push else 0.0

    def _transpose(self, now: float, operation: Operation, model: StallModel) -> float:
        """16-bit rows pushed alone come back in half as many pops; pushed in pairs (``binary``)
        as 32-bit rows do."""
        packed = ".c.b16" in operation.opcode
        halved = packed and ".binary" not in operation.opcode
        cycles = model.lane_cycles * (model.packed_transpose if packed else 1)
        start = max(now, self.free)
        self.free = start + cycles
        if operation.opcode.endswith(".end"):
            width = _WIDTH.search(operation.text)
            count = (int(width[1]) if width else _LANES) // (_ROWS * (2 if halved else 1))
            each = model.lane_cycles * (model.packed_transpose if halved else 1)
            first = start + model.transpose_latency["packed" if packed else "whole"]
            self.transposed.extend(first + each * (i + 1) for i in range(count))
        return max(0.0, start - now - model.lane_queue_cycles)
