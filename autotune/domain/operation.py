"""What the chip runs for one call of a function beside its kernels: XLA's own operations, in the
order of the compiled schedule; and what a step of a kernel costs, which teaches other problems."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite

from autotune.domain.codec import OmitDefault
from autotune.domain.limits import Bytes, Count, Micros, Text, Word


class Phase(StrEnum):
    """An operation that runs beside others has a start and a done of their own."""

    WHOLE = "whole"
    START = "start"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledOperation:
    """One instruction of the compiled module, a kernel among it.

    ``kernel``: which of the function's calls it is, None for XLA's own. ``runs``: how often, loops
    unrolled; None where data decide that. ``awaits``: the start that a ``Phase.DONE`` is of.
    ``hbm_bytes``: what a run reads and writes in HBM, the padding of tiles among it.
    ``expected_cycles``: XLA's own ``estimated_cycles``; 0 where it has none. ``simulated_us``: of a
    run, by its instruction schedule; None where it has none, or with the ``refusal`` to simulate
    it. ``is_ahead``: the run of the program before it has fetched it already.
    """

    name: str
    opcode: str
    kernel: int | None = None
    runs: int | None
    phase: Phase
    awaits: str
    hbm_bytes: int
    expected_cycles: int
    simulated_us: float | None = None
    refusal: str = ""
    is_ahead: bool = False

    @property
    def is_collective(self) -> bool:
        """Whether it waits for other devices."""
        return self.opcode.startswith(_COLLECTIVES)


_COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-",
    "ragged-all",
    "recv",
    "reduce-scatter",
    "send",
)


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
