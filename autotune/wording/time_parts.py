"""What a time is made of, in words: one row for each part, for reports, pages and the docs."""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain.explanation import TimePart


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWords:
    """``does``: what a candidate does with ``{}`` of it. ``change``: what makes it smaller in a
    config; empty where no config does."""

    meaning: str
    does: str
    change: str

    def __str__(self) -> str:
        return f"{self.meaning} To make it smaller: {self.change or 'no config does'}."


PART_WORDS: Mapping[TimePart, PartWords] = {
    TimePart.ISSUE: PartWords(
        meaning="The core issues vector and matrix operations.",
        does="needs {} to issue vector and matrix operations",
        change="larger blocks, so that sums are loaded and stored less often",
    ),
    TimePart.SCALAR: PartWords(
        meaning="The core issues scalar operations only: addresses, and starting DMAs.",
        does="needs {} for scalar work and DMA issue",
        change="larger blocks, so that there are fewer grid steps",
    ),
    TimePart.MATRIX: PartWords(
        meaning="The core waits for a matrix unit to take or give a product.",
        does="stalls {} for the matrix units",
        change="larger blocks, so that a product need not wait for the one before",
    ),
    TimePart.LANES: PartWords(
        meaning="The core waits for sums, shuffles and transposes across lanes.",
        does="stalls {} for cross-lane results",
        change="larger blocks, so that the kernel reduces less often",
    ),
    TimePart.HBM: PartWords(
        meaning="The core waits for the bytes that HBM delivers or takes.",
        does="waits {} for HBM",
        change="larger blocks, or a grid order in which blocks stay, so that less is fetched again",
    ),
    TimePart.LATENCY: PartWords(
        meaning="The core waits for a DMA to answer, however few its bytes are.",
        does="waits {} for DMA latency",
        change="larger blocks, so that fewer steps wait for a DMA to answer",
    ),
    TimePart.FILL: PartWords(
        meaning="The core waits for the first blocks, and for the last ones to be written.",
        does="waits {} for its first blocks",
        change="smaller blocks, so that the first ones are there sooner",
    ),
    TimePart.XLA: PartWords(
        meaning="What XLA does around the kernel, such as padding, transposing and copying.",
        does="leaves {} to XLA around the kernel",
        change="",
    ),
}
