"""Why a candidate takes its time: data for people, kept with the estimate."""

from dataclasses import dataclass
from enum import StrEnum


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
    XLA = "operations of XLA"


ISSUE, SCALAR, MATRIX, LANES, HBM, LATENCY, FILL, XLA = PARTS = tuple(TimePart)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """``parts_us`` are microseconds by name of :data:`PARTS`; together they are the whole time:
    the core either issues, or stalls for a unit, or waits for a DMA.

    ``roofline_us``: no schedule is faster. ``mxu_us``: what the matrix units are busy, their mean.
    ``least_hbm_bytes``: arguments and results once. ``vmem``: bytes by operand and scratch, as
    expected from the trace, buffers included. ``burst_bytes``: the mean contiguous piece of HBM
    that a DMA touches. ``spill_bundles``: bundles of the program that store or load a spilled
    vector register.
    """

    parts_us: tuple[tuple[str, float], ...]
    roofline_us: float
    mxu_us: float
    steps: int
    dma_count: int
    burst_bytes: int
    least_hbm_bytes: int
    vmem: tuple[tuple[str, int], ...]
    spill_bundles: int

    @property
    def largest_part(self) -> str:
        """What to change first."""
        return max(self.parts_us, key=lambda part: part[1])[0]

    def part_us(self, name: str) -> float:
        """Microseconds of one part; 0.0 where it is not told."""
        return dict(self.parts_us).get(name, 0.0)
