"""What became of one candidate: a closed union. Failure is data here, never a large number.

Which rule of Pallas on TPU a candidate breaks stands with the numbers that show it; sentences are
made of them by ``autotune.wording.outcome``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf, log
from typing import Annotated, ClassVar

from autotune.domain.codec import Local, OmitDefault, OmitNone
from autotune.domain.explanation import Explanation, OperationTime, StepCost, TimePart
from autotune.domain.limits import MOST_NAMES, Bytes, Count, Limit, Micros, Share, Text, Time, Word


class Rule(StrEnum):
    """By these names refusals are counted and stored."""

    BLOCK_ALIGNMENT = "block alignment"
    OUTPUT_REVISITED = "output revisited"
    OUTPUT_UNWRITTEN = "output not written"
    INPUT_UNREAD = "input not read"
    UNSAFE_ALIAS = "unsafe alias"
    SEMANTICS_RANK = "rank of dimension semantics"
    PARALLEL_AFTER_ARBITRARY = "parallel after arbitrary"
    SEQUENTIAL_AXIS = "sequential axis"


class Dependency(StrEnum):
    """What ties the positions of a grid axis together, so that they must run one after another."""

    SHARED_OUTPUT = "shared output"
    OUTPUT_BY_HAND = "output by hand"
    SCRATCH = "scratch"
    SCRATCH_ALONG_AXIS = "scratch along axis"


@dataclass(frozen=True, slots=True, kw_only=True)
class MisalignedBlock:
    """``dimension`` of the block, from 0, is neither a multiple of ``multiple``, nor the whole, nor
    a power of two from ``least_power`` on where that is allowed too. ``nearest``: the legal sizes
    below and above it. A block without dimensions has none of these."""

    kind: ClassVar[str] = Rule.BLOCK_ALIGNMENT.value
    operand: Text
    block: Annotated[tuple[Bytes, ...], Limit(longest=MOST_NAMES)]
    dimension: Count = 0
    whole: Bytes = 0
    multiple: Bytes = 0
    least_power: Bytes | None = None
    nearest: Annotated[tuple[Bytes, ...], Limit(longest=2)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisitedOutput:
    kind: ClassVar[str] = Rule.OUTPUT_REVISITED.value
    operand: Text
    visits: Bytes
    blocks: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class UnwrittenOutput:
    kind: ClassVar[str] = Rule.OUTPUT_UNWRITTEN.value
    operand: Text
    blocks: Bytes
    blocks_total: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadInput:
    """The grid gets to ``read`` of the ``whole`` elements of a dimension, that of the default
    config to all."""

    kind: ClassVar[str] = Rule.INPUT_UNREAD.value
    operand: Text
    dimension: Count
    read: Bytes
    whole: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsafeAlias:
    """An input that shares memory with an output is read where another step writes."""

    kind: ClassVar[str] = Rule.UNSAFE_ALIAS.value


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticsRank:
    kind: ClassVar[str] = Rule.SEMANTICS_RANK.value
    semantics: Count
    grid: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelAfterArbitrary:
    kind: ClassVar[str] = Rule.PARALLEL_AFTER_ARBITRARY.value
    axis: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialAxis:
    """A grid axis that must not be parallel. ``buffer``: the output or scratch that is the
    reason."""

    kind: ClassVar[str] = Rule.SEQUENTIAL_AXIS.value
    axis: Count
    dependency: Dependency
    buffer: Text


Violation = (
    MisalignedBlock
    | RevisitedOutput
    | UnwrittenOutput
    | UnreadInput
    | UnsafeAlias
    | SemanticsRank
    | ParallelAfterArbitrary
    | SequentialAxis
)


class OutcomeKind(StrEnum):
    """What is stored and shown of an outcome's class; ``kind`` of each is the plain text."""

    ESTIMATED = "estimated"
    NOT_ESTIMATED = "compiled, not estimated"
    ILLEGAL = "illegal"
    OUT_OF_VMEM = "out of VMEM"
    COMPILE_FAILED = "compile failed"
    TIMED_OUT = "timed out"
    CRASHED = "crashed"
    WRONG_RESULT = "wrong result"


_UNKNOWN_ERROR = 0.2  # to decide by where no error bar is known: wider than most that are


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTime:
    """One ``pallas_call`` of a function that makes several: ``time_us`` of all its ``runs``."""

    name: Text
    runs: Count
    time_us: Micros
    limited_by: Word
    vmem_used_bytes: Bytes


class Regime(StrEnum):
    """Kinds of kernels that estimates are wrong by different shares of."""

    COMPUTE = "compute"
    HBM = "HBM"
    STEP_OVERHEAD = "step overhead"
    PIPELINE_FILL = "pipeline fill"
    LINKS = "links"


_MAIN_PART: Mapping[str, str] = {
    Regime.COMPUTE: TimePart.ISSUE,
    Regime.HBM: TimePart.HBM,
    Regime.STEP_OVERHEAD: TimePart.LATENCY,
    Regime.PIPELINE_FILL: TimePart.FILL,
    Regime.LINKS: TimePart.LINKS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A predicted time of one call of the function, and what it is made of. Never to be mixed with
    a measurement.

    ``error`` is the error bar: the time lies within that share of ``time_us`` for nine of ten
    kernels of its kind; None where that is not known. ``resolution`` is the share by which another
    config of the same problem must differ to be told apart. The times by resource overlap in
    hardware, so they need not add up to ``time_us``; the parts of the ``explanation`` do.
    ``limited_by`` is the kind of kernel that the error bar was found for (``Regime``).
    ``xla_us``: how much of the time XLA takes around the kernels, ``operations`` those of its
    operations that are worth a line.
    """

    time_us: Time
    compute_us: Micros
    memory_us: Micros
    overhead_us: Micros
    fill_us: Micros
    limited_by: Word
    model: Word
    vmem_used_bytes: Bytes
    vmem_allowed_bytes: Bytes
    hbm_bytes: Bytes
    flops: Annotated[int, Limit(least=0, most=10**30)]
    notes: Annotated[tuple[Text, ...], Limit(longest=100)] = ()
    error: Share | None = None
    resolution: Share = 0.0
    explanation: Explanation | None = None
    calls: OmitDefault[Annotated[tuple[CallTime, ...], Limit(longest=1_000)]] = ()
    """Of a function with several."""
    xla_us: OmitDefault[Micros] = 0.0
    operations: OmitDefault[Annotated[tuple[OperationTime, ...], Limit(longest=1_000)]] = ()

    @property
    def kernel_us(self) -> float:
        """Of the kernels alone."""
        return self.time_us - self.xla_us

    @property
    def limiting_part(self) -> str:
        """The part of the explanation that another config can reduce most. Of an estimate of an
        older version, which has none, the main part of its kind of kernel."""
        why = self.explanation
        if why is not None and why.parts_us:
            return why.limiting_part
        return _MAIN_PART.get(self.limited_by, self.limited_by)

    @property
    def doubt(self) -> float:
        """The error bar to decide by: a wide one where none is known."""
        return _UNKNOWN_ERROR if self.error is None else self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    kind: ClassVar[str] = OutcomeKind.ESTIMATED.value
    estimate: Estimate
    program: Word
    """Hash of the final instruction listing: equal programs have equal hashes."""
    step: Local[OmitNone[StepCost | None]] = None
    """Of a function that makes one call."""

    @property
    def surprise(self) -> float | None:
        """By which share, about, the time was not as predicted; None where nothing was."""
        predicted_us = self.step.predicted_us if self.step else 0.0
        return abs(log(self.estimate.time_us / predicted_us)) if 0 < predicted_us < inf else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotEstimated:
    """It compiles, but no time can be given. Either the simulator gives a ``reason``, or the
    simulated time ``us`` is less than ``least_us``, which its bytes and operations take at the
    chip's peak rates."""

    kind: ClassVar[str] = OutcomeKind.NOT_ESTIMATED.value
    reason: Text = ""
    vmem_used_bytes: Bytes
    program: Word
    us: OmitNone[Micros | None] = None
    least_us: OmitNone[Micros | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Illegal:
    """Against a rule of Pallas on TPU: alignment, output visits, parallel axes. ``rule``: one of
    ``autotune.domain.outcome.Rule``, broken by the ``violation``. ``reason``: what a constraint
    of the kernel says, or the sentence of an older version, which kept no ``violation``."""

    kind: ClassVar[str] = OutcomeKind.ILLEGAL.value
    reason: Text = ""
    rule: Text = ""
    violation: OmitNone[Violation | None] = None


class LimitSource(StrEnum):
    """Who set the VMEM limit that a candidate passes."""

    CHIP = "chip"
    CONFIG = "config"
    COMPILER = "compiler"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfVmem:
    """``by_rule``: known before compiling, ``used_bytes`` is then the least that is needed.
    ``limited_by``: one of ``LimitSource``; empty where it is not known. ``remedy_bytes``: of a
    kernel that passes no limit on, the one that it should ask for. ``reason``: the sentence of an
    older version."""

    kind: ClassVar[str] = OutcomeKind.OUT_OF_VMEM.value
    reason: Text = ""
    used_bytes: Bytes
    allowed_bytes: Bytes
    by_rule: bool = False
    limited_by: Text = ""
    remedy_bytes: OmitNone[Bytes | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileFailed:
    """``unsupported``: the compiler says that the chip or Mosaic cannot do it. ``raised_at``: what
    was raised before the compiler was asked, and the file and line that raised it."""

    kind: ClassVar[str] = OutcomeKind.COMPILE_FAILED.value
    reason: Text
    unsupported: bool = False
    message: Text = ""
    raised_at: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    kind: ClassVar[str] = OutcomeKind.TIMED_OUT.value
    reason: Text
    limit_s: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """The compiler process died: abort, kill, out of memory. ``log_tail``: its last lines."""

    kind: ClassVar[str] = OutcomeKind.CRASHED.value
    reason: Text
    log_tail: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongResult:
    """``check``: which check of the gate failed, one of ``autotune.domain.evidence.FailedCheck``;
    empty where it is not known. ``error``: the largest error in units of what is allowed,
    ``where``: the element that has it."""

    kind: ClassVar[str] = OutcomeKind.WRONG_RESULT.value
    reason: Text
    estimate: Estimate | None = None
    check: Word = ""
    error: Annotated[float, Limit(least=0, finite=False)] | None = None
    where: Text = ""


Outcome = (
    Estimated
    | NotEstimated
    | Illegal
    | OutOfVmem
    | CompileFailed
    | TimedOut
    | Crashed
    | WrongResult
)


def estimated_us(outcome: Outcome | None) -> float | None:
    """None where it has no time."""
    return outcome.estimate.time_us if isinstance(outcome, Estimated) else None


Failure = Illegal | OutOfVmem | CompileFailed | TimedOut | Crashed
"""What a compiler process can answer in the place of a trace or a compiled program."""
