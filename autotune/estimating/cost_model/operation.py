"""How long the operations of a compiled module keep the chip, by the order of its schedule.

An operation takes what its own instruction schedule says (simulated as kernels are); one without,
such as a copy by the DMA engine, what its bytes take at the chip's HBM rate; one whose schedule
depends on data the longer of that and what XLA itself expects of it, a product at least its FLOPs
at the rate of large ones. None is faster than its arithmetic at the chip's peak. What was
started ahead is waited for, with its latency, only as far as nothing else has hidden it, and shares
HBM with what does; what the program before fetches is there. Each program takes its time to start.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from autotune.domain.explanation import (
    LinkTransfer,
    OperationTime,
    Phase,
    Route,
    ScheduledOperation,
)
from autotune.domain.key import ChipInfo
from autotune.domain.step import Basis
from autotune.estimating.cost_model.links import Links
from autotune.estimating.roofline import peak_ops_per_s
from autotune.estimating.simulator import constants

_MATTERS_SHARE = 0.01  # of the time: what takes less by its bytes may well depend on data
_MOST_TURNS = 256  # of a loop that are told apart
_TURNS = 1000  # that a loop may well have whose length data decide
_VECTOR_SLOTS = 4  # of a bundle (JAX's scaling book, "What is a TPU?"), from v4 to v7x
_PREFETCHES = ("copy", "slice", "dynamic-slice")  # started ahead: between HBM and VMEM
_HBM, _LINKS = "HBM", "links"
Kernels = Sequence[tuple[float, float]]  # microseconds and bytes of HBM of each, all its runs
# A SparseCore reads its command, its program and indices, one after the other, before any row.
_OFFLOADED, _READS = ("call", "call-update"), 4  # of libtpu 0.0.44, 0.0.50
_RELAYOUT = re.compile(r"copy(?!-)|bitcast|transpose|reshape|sparse-core-data-format")


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaTime:
    """``time_us``: of the chip, kernels apart, the start of the program included. ``operations``:
    each that takes any of it, in order.
    ``unknown``: those that depend on data, in a loop or by themselves, where they could matter;
    ``untimed``: what waits for other devices, and kernels for SparseCores; ``by_kind``: the time by
    what operations do. ``error``: the error bar, as a share of the time; None where data decides
    the time, SparseCores share in it or nothing is known of the chip. ``kernels_late_us``: what
    kernels take more where HBM does not sustain its full rate."""

    time_us: float
    hbm_bytes: int
    operations: tuple[OperationTime, ...]
    unknown: tuple[str, ...]
    untimed: tuple[str, ...]
    by_kind: Mapping[str, float]
    error: float | None
    kernels_late_us: float


class TimedOperation(NamedTuple):
    """What all runs of an operation take, and what of it nothing else hides. Of one that has a
    start and a done it is the start; of a kernel it is what it takes more than by itself."""

    operation: ScheduledOperation
    basis: Basis
    busy_us: float
    exposed_us: float


def xla_time(schedule: Sequence[ScheduledOperation], kernels: Kernels, chip: ChipInfo) -> XlaTime:
    rates = Rates(chip, is_plain=not kernels)
    taken = longest_branches(schedule, rates)
    sparse = [operation for operation in taken if operation.on_sparse_cores]
    others = [o for o in taken if o.kernel is None and not o.on_sparse_cores]
    untimed = sparse + [o for o in others if o.transfer and o.transfer.route is not Route.HOST]
    timed = timeline([o for o in taken if o not in untimed], rates, kernels)
    shown = [each for each in timed if each.exposed_us > 0 and each.operation.kernel is None]
    waited = [
        OperationTime(
            name=each.operation.name,
            opcode=each.operation.opcode,
            runs=each.operation.runs,
            time_us=each.exposed_us,
            hbm_bytes=each.operation.hbm_bytes * each.operation.runs,
        )
        for each in shown
    ]
    start_us = constants.start_us() if schedule else 0.0
    time_us = start_us + sum(operation.time_us for operation in waited)
    by_kind = time_by_kind(shown)
    per_us = sum(operation.runs for operation in waited) / (time_us or 1.0)
    whole_us = time_us - start_us + sum(us for us, _ in kernels)
    unknown = tuple(
        operation.name
        for operation in others
        if (operation.undecided or operation.refusal or operation.branches)
        and rates.once(operation)[1] * operation.runs
        >= _MATTERS_SHARE * whole_us / (_TURNS if operation.undecided else 1)
    )
    return XlaTime(
        time_us=time_us,
        hbm_bytes=sum(operation.hbm_bytes * operation.runs for operation in others),
        operations=tuple(waited),
        unknown=unknown,
        untimed=tuple(o.name.partition(".")[0] if o in sparse else o.name for o in untimed),
        by_kind=by_kind,
        error=None if unknown or sparse else constants.xla_error(chip.chip.value, by_kind, per_us),
        kernels_late_us=sum(each.exposed_us for each in timed if each.operation.kernel is not None),
    )


def relayout_us(operations: Iterable[OperationTime]) -> float:
    """What copies take that change nothing but the layout."""
    return sum(o.time_us for o in operations if is_relayout(o.name))


def is_relayout(name: str) -> bool:
    """Whether an instruction of XLA of that name changes nothing but the layout."""
    return bool(_RELAYOUT.match(name))


def time_by_kind(operations: Iterable[TimedOperation]) -> dict[str, float]:
    """Microseconds in which nothing else goes on, by what an operation does."""
    by_kind: dict[str, float] = {}
    for each in operations:
        kind = each.operation.kind
        if kind == constants.GATHER and each.operation.opcode in _OFFLOADED:
            kind = constants.SPARSE
        elif kind == constants.GATHER and each.basis is Basis.SIMULATED:
            kind = constants.LISTED
        by_kind[kind] = by_kind.get(kind, 0.0) + each.exposed_us
    return by_kind


def hbm_bytes_per_us(chip: ChipInfo) -> float:
    """Of all cores of a device together, with the efficiency that hardware showed where as much is
    read as written."""
    if chip.chip.value not in constants.CHIPS:
        return chip.hbm_bytes_per_s * chip.num_cores / 1e6
    core = constants.load(chip.chip.value, is_fused=True)
    read = core.hbm_bytes_per_cycle * core.clock_hz * chip.num_cores / 1e6
    return read * 2 / (1 + core.write_cost) / (1 + core.turn_cost)


class Rates:
    """Of a device, and of the ``links`` that it has; without them a device is alone.
    ``latency_us``: of a DMA that reads HBM, and of one that writes it."""

    def __init__(
        self, chip: ChipInfo, links: Links | None = None, *, is_plain: bool = True
    ) -> None:
        self.chip, self.links = chip, links
        self.bytes_per_us = hbm_bytes_per_us(chip)
        is_known = chip.chip.value in constants.CHIPS
        ways = {"is_fused": True, "is_plain": is_plain}
        core = constants.load(chip.chip.value, **ways) if is_known else None
        clock_hz = core.clock_hz if core else 1e9
        self._us_per_cycle = 1e6 / clock_hz if core else 0.0
        cycles = (core.real_read_latency_cycles, core.real_write_latency_cycles) if core else (0, 0)
        self.latency_us = [self._us_per_cycle * latency for latency in cycles]
        lanes = chip.num_lanes * chip.num_sublanes * chip.num_cores
        self._vector_ops_per_us = _VECTOR_SLOTS * lanes * clock_hz / 1e6
        self._matrix_share = constants.matrix_share(chip.chip.value) if core else 1.0
        self._barrier_us = core.barrier_us if core else 0.0
        self._offloaded_share = core.offloaded_share if core else 1.0
        self.is_side_by_side = core is not None and core.is_side_by_side
        self.sustained_share = core.sustained_share if core else 1.0
        self.sustained_us = core.sustained_us if core else 0.0
        self.one_way_bytes_per_us = self.bytes_per_us * (1 + core.turn_cost if core else 1)

    def once(self, operation: ScheduledOperation) -> tuple[Basis, float]:
        """What a run takes by itself, and by what."""
        if self.links and operation.transfer:
            across_us = self.links.time_us(operation.transfer)
            if across_us is not None:
                return Basis.LINKS, max(across_us, operation.hbm_bytes / self.bytes_per_us)
        peak_per_us = peak_ops_per_s(operation.dtype, self.chip) * self.chip.num_cores / 1e6
        least_us = operation.flops / peak_per_us
        if operation.simulated_us is not None:
            return Basis.SIMULATED, max(operation.simulated_us, least_us) + self._barrier_us
        expected_us = operation.expected_cycles * self._us_per_cycle if operation.refusal else 0.0
        is_one_way = operation.phase is Phase.START and operation.opcode in _PREFETCHES
        rate = self.one_way_bytes_per_us if is_one_way else self.bytes_per_us
        rate *= self._offloaded_share if operation.opcode in _OFFLOADED else 1
        moved_us = max(operation.hbm_bytes / rate, expected_us)
        if least_us or operation.vector_ops:
            made_us = least_us / self._matrix_share + operation.vector_ops / self._vector_ops_per_us
            return Basis.FLOPS, max(moved_us, made_us)
        return Basis.BYTES, moved_us


def longest_branches(
    schedule: Sequence[ScheduledOperation], rates: Rates
) -> list[ScheduledOperation]:
    """Without those branches of conditionals that another of the same takes longer than."""
    sums = defaultdict[str, dict[int, float]](lambda: defaultdict(float))
    for operation in schedule:
        for name, number in operation.branches:
            sums[name][number] += rates.once(operation)[1] * operation.runs
    longest = {name: max(branches, key=lambda n: branches[n]) for name, branches in sums.items()}
    return [o for o in schedule if all(longest[name] == n for name, n in o.branches)]


def timeline(
    schedule: Sequence[ScheduledOperation], rates: Rates, kernels: Kernels = ()
) -> list[TimedOperation]:
    """Each operation in order, kernels with times of their own apart."""
    clock = _Clock(rates, kernels)
    for loop, turns in groupby(schedule, key=lambda operation: operation.loop):
        operations = list(turns)
        clock.enter(loop, operations)
        for operation in operations:
            clock.run(operation)
    return clock.timed


@dataclass(slots=True)
class _Clock:
    """``strained``: for how long HBM was busy of late beyond what it sustains; ``more``: what each
    operation takes more for that. ``free``: when each way that copies take is, by its name;
    ``ends``: of what is on its way the way and the end, by the name of its start."""

    rates: Rates
    kernels: Kernels
    now: float = 0.0
    strained: float = 0.0
    more: Iterator[float] = field(default_factory=lambda: iter(()))
    free: dict[str, float] = field(default_factory=dict)
    ends: dict[str, tuple[TimedOperation, str, float]] = field(default_factory=dict)
    timed: list[TimedOperation] = field(default_factory=list)

    def enter(self, loop: str, operations: Sequence[ScheduledOperation]) -> None:
        """Of operations that follow each other, or take turns in a ``loop``: a part of each leaves
        HBM to the next one, so no stream is as long as all turns of one together."""
        whole = [o for o in operations if o.phase is Phase.WHOLE and not o.on_sparse_cores]
        turns = max(1, min([_MOST_TURNS, *(o.runs for o in whole)])) if loop else 1
        parts = [[us / turns for us in self._asked(operation)] for operation in whole]
        more = [0.0] * len(parts)
        for _ in range(turns):
            for number, (takes, moves) in enumerate(parts):
                more[number] += self._sustained(takes, moves) - takes
        self.more = iter(more)

    def _asked(self, operation: ScheduledOperation) -> tuple[float, float]:
        """How long all its runs take, and how long they keep HBM."""
        us = self.rates.once(operation)[1] * operation.runs
        moved = float(operation.hbm_bytes * operation.runs)
        if operation.kernel is not None:
            us, moved = self.kernels[operation.kernel]
        return us, moved / self.rates.one_way_bytes_per_us

    def run(self, operation: ScheduledOperation) -> None:
        if operation.is_ahead:
            return
        if operation.on_sparse_cores:
            self.timed.append(TimedOperation(operation, Basis.NOTHING, 0.0, 0.0))
            return
        basis, (takes, moves) = self.rates.once(operation)[0], self._asked(operation)
        timed = TimedOperation(operation, basis, takes, takes)
        if operation.kernel is not None:
            self.now += takes
            timed = TimedOperation(operation, basis, takes, next(self.more))
        elif operation.phase is Phase.START:
            way = _way(operation.transfer)
            self.free[way] = max(self.free.get(way, 0.0), self.now) + takes
            late_us = self.rates.latency_us[operation.is_write] if operation.hbm_bytes else 0.0
            late_us *= _READS if operation.opcode in _OFFLOADED else 1
            self.ends[operation.name] = timed, way, self.free[way] + late_us * operation.runs
            return
        elif operation.phase is Phase.DONE:
            if operation.awaits not in self.ends:
                return
            begun, _, end = self.ends.pop(operation.awaits)
            done = replace(begun.operation, name=operation.name)
            timed = begun._replace(operation=done, exposed_us=max(0.0, end - self.now))
        else:
            hides = operation.flops > 0 or operation.transfer is not None
            takes = self._beside(takes, moves, hides=hides)
            takes += next(self.more)
            timed = timed._replace(busy_us=takes, exposed_us=takes)
        self.now += timed.exposed_us
        self.timed.append(timed)

    def _sustained(self, takes: float, moves: float) -> float:
        """How long it takes, as HBM keeps its full rate only as long as it was not busy before."""
        share, most = self.rates.sustained_share, self.rates.sustained_us
        moves = min(moves, takes)
        takes = max(takes, (moves - most + self.strained) / share)
        self.strained = min(max(0.0, self.strained + moves - takes * share), most)
        return takes

    def _beside(self, takes: float, moves: float, *, hides: bool) -> float:
        """How long it takes beside copies in HBM that are on their way: as long as both ask for
        HBM, each has half. A product hides that behind its arithmetic, a collective behind its
        links; others wait for latency or bytes. What an operation leaves is theirs."""
        left, moves = max(0.0, self.free.get(_HBM, 0.0) - self.now), min(moves, takes)
        shared, spare = min(left, moves), takes - moves
        if self.rates.is_side_by_side and not hides:  # all of it in its waits
            shared = min(left, takes) * moves / (takes or 1)
        more = max(0.0, shared - spare) if hides else shared
        late = shared if more else min(takes, left) - min(spare, left)
        if late > 0:
            self.free[_HBM] += late
            for name, (timed, way, end) in self.ends.items():
                if way == _HBM and end > self.now:
                    self.ends[name] = timed, way, end + late
        return takes + more


def _way(transfer: LinkTransfer | None) -> str:
    """What follows each other: copies in HBM, transfers to the host and back, those to devices."""
    if transfer is None:
        return _HBM
    return Route.HOST if transfer.route is Route.HOST else _LINKS
