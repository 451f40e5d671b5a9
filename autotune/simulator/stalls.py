"""Interlock stalls of the matrix and transpose units, added to the bundles.

One in-order pass over the listing in address order, with state carried across blocks (facts
sect. 4.2). All times are cycles.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate

from autotune.simulator.bundles import Bundle, Listing, Operation
from autotune.simulator.constants import Chip, StallModel

_UNIT = re.compile(r"(?:\[(\d{1,4})\])?\.(mxu|xlu)(\d)\b")
_PARTS = re.compile(r"\[\d+/(\d{1,4})\]")
_MATCH = re.compile(r"%\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Stall cycles before each bundle issues, and MXU cycles it asks for, both cumulative."""

    stalls_before: tuple[float, ...]  # [bundles + 1]
    mxu_before: tuple[float, ...]  # [bundles + 1], mean over the core's MXUs

    def clock(self, start: int, address: int) -> float:
        """Return the cycle at which ``address`` issues, counted from the block start."""
        stalls = self.stalls_before[address + 1] - self.stalls_before[start]
        return round(address - start + stalls, 3)

    def mxu(self, start: int, stop: int) -> float:
        """Return the MXU cycles of the bundles ``start`` to ``stop`` (exclusive)."""
        return round(self.mxu_before[stop] - self.mxu_before[start], 3)


def price(listing: Listing, chip: Chip) -> Costs:
    """Return the cost of every bundle of the listing on this chip."""
    pipeline = _Pipeline(chip)
    stalls = [pipeline.issue(bundle) for bundle in listing.bundles]
    if chip.stalls is None:
        stalls = [0.0] * len(stalls)
    return Costs(
        stalls_before=tuple(accumulate(stalls, initial=0.0)),
        mxu_before=tuple(accumulate(pipeline.mxu_cycles, initial=0.0)),
    )


@dataclass(slots=True)
class _MatrixUnit:
    """One MXU: when it is free, when its staged weights are in, and its results on the way."""

    free: float = 0.0
    weights: float = 0.0
    results: deque[float] = field(default_factory=deque)
    accumulators: dict[int, float] = field(default_factory=dict)  # v7x: mrb index -> ready


class _Pipeline:
    """The units of one core during the pass."""

    def __init__(self, chip: Chip) -> None:
        self._chip = chip
        self._model: StallModel | None = chip.stalls
        self._now = 0.0
        self._matrix: dict[str, _MatrixUnit] = {}
        self._pushed: dict[str, float] = {}  # XLU: id of a push -> result ready
        self._transposed: dict[str, deque[float]] = {}
        self.mxu_cycles: list[float] = []

    def issue(self, bundle: Bundle) -> float:
        """Issue one bundle; return how long it stalled."""
        self._now += 1
        stall, busy = 0.0, 0.0
        for operation in bundle.operations:
            if operation.opcode.startswith("vmatmul"):
                busy += self._chip.matmul_cycles(operation.opcode) / self._chip.mxu_count
            if operation.opcode.startswith("v") and self._model:
                stall = max(stall, self._unit(operation, self._model))
        self._now += stall
        self.mxu_cycles.append(busy)
        return stall

    def _unit(self, operation: Operation, model: StallModel) -> float:
        unit = _UNIT.search(operation.opcode)
        if unit is None:
            return 0.0
        if unit[2] == "xlu":
            return self._cross_lane(operation, unit[3], model)
        matrix = self._matrix.setdefault(unit[3], _MatrixUnit())
        if operation.opcode.startswith("vmatmul"):
            return self._multiply(matrix, operation, unit[1], model)
        if operation.opcode.startswith("vpop"):
            return self._pop(matrix, unit[1])
        if operation.opcode.startswith("vmatpush"):
            matrix.weights = max(self._now, matrix.weights) + model.push_cycles
        return 0.0

    def _multiply(
        self, matrix: _MatrixUnit, operation: Operation, index: str | None, model: StallModel
    ) -> float:
        cycles = self._chip.matmul_cycles(operation.opcode)
        count = self._chip.matmul_results(operation.opcode)
        start = max(self._now, matrix.free)
        if ".vlgmr" in operation.opcode:
            start = max(start, matrix.weights)
        matrix.free = start + cycles
        ready = [start + model.matmul_latency + cycles * i / count for i in range(count)]
        if index is None:
            matrix.results.extend(ready)
        else:
            matrix.accumulators.update({int(index) + i: at for i, at in enumerate(ready)})
        return max(0.0, start - self._now - model.backlog_cycles)

    def _pop(self, matrix: _MatrixUnit, index: str | None) -> float:
        if index is not None:
            return max(0.0, matrix.accumulators.get(int(index), 0.0) - self._now)
        return max(0.0, matrix.results.popleft() - self._now) if matrix.results else 0.0

    def _cross_lane(self, operation: Operation, unit: str, model: StallModel) -> float:
        """A pop names its push; matching by order is wrong where transposes pop more."""
        opcode, transposed = operation.opcode, self._transposed.setdefault(unit, deque())
        if opcode.startswith("vxpose"):
            if opcode.endswith(".end"):
                parts = _PARTS.search(operation.text)
                ready = self._now + model.transpose_latency
                self._pushed[operation.name] = ready
                transposed.extend([ready] * (int(parts[1]) if parts else 1))
            return 0.0
        if not opcode.startswith("vpop"):
            self._pushed[operation.name] = self._now + model.reduce_latency
            return 0.0
        push = _MATCH.search(operation.text)
        if push:
            return max(0.0, self._pushed.get(push[0], 0.0) - self._now)
        return max(0.0, transposed.popleft() - self._now) if transposed else 0.0
