"""Which rule of Pallas on TPU a candidate breaks, and the numbers that show it: plain values, of
which ``autotune.wording.outcome`` makes sentences."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

from autotune.domain.limits import MOST_NAMES, Bytes, Count, Limit, Text


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
