"""Which rule of Pallas on TPU a candidate breaks, and the numbers that show it: plain values, of
which ``autotune.wording.violation`` makes sentences."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class Rule(StrEnum):
    """By these names refusals are counted and stored."""

    BLOCK_ALIGNMENT = "block alignment"
    OUTPUT_REVISITED = "output revisited"
    OUTPUT_UNWRITTEN = "output not written"
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

    rule: ClassVar[Rule] = Rule.BLOCK_ALIGNMENT
    operand: str
    block: tuple[int, ...]
    dimension: int = 0
    whole: int = 0
    multiple: int = 0
    least_power: int | None = None
    nearest: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisitedOutput:
    rule: ClassVar[Rule] = Rule.OUTPUT_REVISITED
    operand: str
    visits: int
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnwrittenOutput:
    rule: ClassVar[Rule] = Rule.OUTPUT_UNWRITTEN
    operand: str
    blocks: int
    blocks_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsafeAlias:
    """An input that shares memory with an output is read where another step writes."""

    rule: ClassVar[Rule] = Rule.UNSAFE_ALIAS


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticsRank:
    rule: ClassVar[Rule] = Rule.SEMANTICS_RANK
    semantics: int
    grid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelAfterArbitrary:
    rule: ClassVar[Rule] = Rule.PARALLEL_AFTER_ARBITRARY
    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialAxis:
    """A grid axis that must not be parallel. ``buffer``: the output or scratch that is the
    reason."""

    rule: ClassVar[Rule] = Rule.SEQUENTIAL_AXIS
    axis: int
    dependency: Dependency
    buffer: str


Violation = (
    MisalignedBlock
    | RevisitedOutput
    | UnwrittenOutput
    | UnsafeAlias
    | SemanticsRank
    | ParallelAfterArbitrary
    | SequentialAxis
)
