"""What is known of estimated times: the lines of ``autotune explain``, with a cell for each."""

from collections.abc import Iterator, Sequence

from autotune.domain.explanation import PARTS
from autotune.domain.outcome import Estimate
from autotune.wording.facts import FACTS
from autotune.wording.units import part_us

Line = tuple[str, list[str]]
"""A name, and the cell of each column; empty where it is not known."""


def parts(estimates: Sequence[Estimate | None]) -> Iterator[Line]:
    """Where the cycles of each final schedule go: issued, or stalled for what; and the share."""
    for part in PARTS:
        cells = [_share(part, e) for e in estimates]
        if any(cells):
            yield part, cells


def _share(part: str, e: Estimate | None) -> str:
    us = e.explanation.part_us(part) if e and e.explanation else 0.0
    return f"{part_us(us)}, {us / e.time_us:.1%}" if e and us else ""


def facts(estimates: Sequence[Estimate | None]) -> Iterator[Line]:
    for name, cell in FACTS:
        cells = [cell(e, e.explanation) if e and e.explanation else "" for e in estimates]
        if any(cells):
            yield name, cells
