"""A mechanical change to the source of a kernel."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from autotune.domain.codec import OmitDefault
from autotune.domain.limits import Count, Limit, Text


class ChangeKind(StrEnum):
    """What is changed. The first two make compile what does not, and are tried only then; the last
    one changes what XLA knows of a kernel, not the kernel."""

    WIDE_SUM = "a bfloat16 product that sums in float32"
    VMEM_LIMIT = "a higher VMEM limit"
    SEMANTICS = "parallel grid axes"
    GRID_ORDER = "another order of the grid"
    NO_BOUNDS_CHECKS = "no bounds checks"
    UNROLLED = "an unrolled loop"
    LATE_SCALE = "a scale behind the product"
    EARLY_SCALE = "a scale before the product"
    BUFFERS = "more buffers"
    COST_ESTIMATE = "a cost estimate for XLA"

    @property
    def is_remedy(self) -> bool:
        return self in (ChangeKind.WIDE_SUM, ChangeKind.VMEM_LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """An expression of a file; lines from 1, columns in bytes from 0, the end is behind it."""

    file: Text
    line: Count
    column: Count
    end_line: Count
    end_column: Count


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SourceChange:
    """``value``: as the kind takes it: letters of semantics, axes of a grid, bytes, turns, buffers;
    flops, transcendentals and bytes with commas."""

    kind: ChangeKind
    place: Place
    value: OmitDefault[Annotated[str, Limit(longest=100)]] = ""
