"""Why a candidate takes its time: data for people, kept with the estimate; and what the chip runs
for one call of a function beside its kernels, XLA's own operations in the order of the schedule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite
from operator import itemgetter
from typing import Annotated

from autotune.domain.codec import OmitDefault, OmitNone
from autotune.domain.limits import MOST_NAMES, Bytes, Count, Limit, Micros, Text, Word


class TimePart(StrEnum):
    """What the time is made of, in the order in which it is shown: the core's in the kernels, and
    what XLA does around them."""

    ISSUE = "vector and matrix issue"
    SCALAR = "scalar issue"
    MATRIX = "matrix unit stalls"
    LANES = "cross-lane stalls"
    HBM = "HBM waits"
    LATENCY = "DMA latency waits"
    FILL = "pipeline fill"
    LINKS = "waits for other devices"
    XLA = "operations of XLA"


WORTH_SHARE = 0.05  # of the time: less than most error bars

ISSUE, SCALAR, MATRIX, LANES, HBM, LATENCY, FILL, LINKS, XLA = PARTS = tuple(TimePart)

CORE = (ISSUE, SCALAR, MATRIX, LANES)
GROWING = (*CORE, HBM, LATENCY)  # what larger blocks make smaller


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """``parts_us`` are microseconds by name of :data:`PARTS`; together they are the whole time:
    the core either issues, or stalls for a unit, or waits for a DMA.

    ``roofline_us``: no schedule of this config is faster; ``least_us``: no config is, with its
    arithmetic and each block of HBM moved once (0.0 where an older version left it out).
    ``mxu_us``: what the matrix units are busy, their mean. ``least_hbm_bytes``: arguments and
    results once. ``vmem``: bytes by operand and scratch, as expected from the trace, buffers
    included. ``burst_bytes``: the mean contiguous piece of HBM that a DMA touches.
    ``spill_bundles``: bundles of the program that store or load a spilled vector register.
    """

    parts_us: Annotated[tuple[tuple[Word, Micros], ...], Limit(longest=MOST_NAMES)]
    roofline_us: Micros
    mxu_us: Micros
    steps: Bytes
    dma_count: Bytes
    burst_bytes: Bytes
    least_hbm_bytes: Bytes
    vmem: Annotated[tuple[tuple[Word, Bytes], ...], Limit(longest=1_000)]
    spill_bundles: Bytes
    least_us: OmitDefault[Micros] = 0.0

    @property
    def busy_us(self) -> float:
        """What the core issues and stalls for, without waits for DMAs."""
        return sum(map(self.part_us, CORE))

    @property
    def reducible_us(self) -> dict[str, float]:
        """What another config may save of each part at most: not what XLA does, nor what the
        arithmetic takes (of vector work nothing, where the matrix units are not used), nor the
        waits for the least traffic of any config."""
        us = dict.fromkeys(PARTS, 0.0) | dict(self.parts_us)
        least_us = self.least_us or self.roofline_us
        # Small blocks fill the matrix units badly: another config keeps them busy for less time.
        arithmetic_us = min(self.mxu_us, self.least_us) if self.least_us else self.mxu_us
        return {
            **_above(us, (ISSUE, MATRIX), arithmetic_us or us[ISSUE]),
            **_above(us, (HBM, FILL, LATENCY), max(0.0, least_us - self.busy_us)),
            SCALAR: us[SCALAR],
            LANES: us[LANES],
        }

    @property
    def limiting_part(self) -> str:
        """The largest that another config can reduce: what to change first. Where none can save
        much, the largest. The core's work is none where all of it can hide behind the traffic."""
        hidden = CORE if self.busy_us < self.least_us else ()
        parts = [part for part in self.parts_us if part[0] not in hidden] or self.parts_us
        gains = [part for part in self.reducible_us.items() if part[0] not in hidden]
        name, us = max(gains, key=itemgetter(1))
        total_us = sum(part for _, part in self.parts_us)
        return name if us >= WORTH_SHARE * total_us else max(parts, key=itemgetter(1))[0]

    @property
    def saving_us(self) -> float:
        """What the change that makes the limiting part smaller may save at most. Larger blocks make
        several parts smaller, smaller blocks the fill alone. Of XLA's part nothing is certain."""
        limiting, reducible = self.limiting_part, self.reducible_us
        if limiting == XLA:
            return self.part_us(XLA)
        parts = GROWING if limiting in GROWING else (limiting,)
        kernels_us = sum(us for name, us in self.parts_us if name != XLA)
        above_us = max(0.0, kernels_us - self.least_us)
        return min(above_us, sum(reducible.get(part, 0.0) for part in parts))

    def part_us(self, name: str) -> float:
        """Microseconds of one part; 0.0 where it is not told."""
        return dict(self.parts_us).get(name, 0.0)


def _above(us: Mapping[str, float], names: Sequence[str], floor_us: float) -> dict[str, float]:
    """What of these parts is above a floor for all of them; it is taken off in their order."""
    gains = {}
    for name in names:
        taken_us = min(us[name], floor_us)
        floor_us -= taken_us
        gains[name] = us[name] - taken_us
    return gains


class Phase(StrEnum):
    """An operation that runs beside others has a start and a done of their own."""

    WHOLE = "whole"
    START = "start"
    DONE = "done"


class Route(StrEnum):
    """How an array crosses the links between devices, or that to the host."""

    GATHER = "all-gather"
    REDUCE = "all-reduce"
    SCATTER = "reduce-scatter"
    EXCHANGE = "all-to-all"
    PERMUTE = "collective-permute"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTransfer:
    """``size_bytes``: of the whole array on one device, gathered or before it is scattered;
    ``devices``: in the group that exchanges it, 0 for all of the program."""

    route: Route
    size_bytes: int
    devices: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledOperation:
    """One instruction of the compiled module, a kernel among it.

    ``kernel``: which of the function's calls it is, None for XLA's own. ``runs``: how often, loops
    unrolled; those whose length data decide have a turn. ``awaits``: the start of a ``Phase.DONE``.
    ``hbm_bytes``: what a run reads and writes in HBM: by its instruction schedule, else each array
    once, the padding of tiles among it.
    ``expected_cycles``: XLA's own ``estimated_cycles``; 0 where it has none. ``simulated_us``: of a
    run, by its instruction schedule; None where it has none, or with the ``refusal`` to simulate
    it. ``is_ahead``: the run of the program before it has fetched it already; ``is_write``: a copy
    that is started goes to HBM from elsewhere.

    ``kind``: the rarest of what it does, empty for arithmetic and moves;
    ``flops``: of the matrix products of a run, multiply and add apart, of elements of ``dtype``;
    ``vector_ops``: of a kernel's other arithmetic, where it is not simulated.
    ``scope``, ``line``: the model's names for it, and the line of its source. ``branches``: those
    of conditionals that it is in, each the name of the conditional and a number. ``loop``: the
    outermost that it is in.
    ``undecided``: the line of the loop around it whose length depends on data. ``sends``: whether
    it is a kernel that speaks to other devices; ``is_unsized``: whether it is one whose grid data
    decide, or of which no more is known than what it is given.
    """

    name: str
    opcode: str
    kernel: int | None = None
    runs: int
    phase: Phase
    awaits: str
    hbm_bytes: int
    expected_cycles: int
    simulated_us: float | None = None
    refusal: str = ""
    is_ahead: bool = False
    is_write: OmitDefault[bool] = False
    is_kernel: OmitDefault[bool] = False
    kind: OmitDefault[str] = ""
    flops: OmitDefault[int] = 0
    dtype: OmitDefault[str] = ""
    vector_ops: OmitDefault[int] = 0
    transfer: OmitNone[LinkTransfer | None] = None
    scope: OmitDefault[str] = ""
    line: OmitDefault[str] = ""
    branches: OmitDefault[tuple[tuple[str, int], ...]] = ()
    loop: OmitDefault[str] = ""
    undecided: OmitDefault[str] = ""
    sends: OmitDefault[bool] = False
    is_unsized: OmitDefault[bool] = False

    @property
    def on_sparse_cores(self) -> bool:
        """Whether it is a kernel for these, which nothing times: it runs beside the core."""
        return self.is_kernel and self.opcode.startswith("call")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTime:
    """An operation of XLA with what its ``runs`` take of the time, what hides behind others
    apart."""

    name: Text
    opcode: Word
    runs: Count
    time_us: Micros
    hbm_bytes: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Mean over the steps of one call: bounds and strides differ between problems, the body does
    not. ``core_us``: microseconds without waits, one core. ``facts``: what it depends on, numbers
    and flags by name, with a ``core_us`` of its arithmetic alone. ``in_vmem``: operands that XLA
    put in VMEM ahead of the call. ``predicted_us``: the time of the whole by what other problems
    had said of its step before it was compiled; 0.0 where they said nothing."""

    core_us: float
    facts: tuple[tuple[str, float], ...]
    in_vmem: tuple[int, ...] = ()
    predicted_us: OmitDefault[float] = 0.0

    @property
    def can_teach(self) -> bool:
        """Not where a cost is no positive number: a step without arithmetic, or what is broken."""
        costs = self.core_us, dict(self.facts).get("core_us", 0.0)
        return all(0.0 < cost < inf for cost in costs) and all(isfinite(n) for _, n in self.facts)
