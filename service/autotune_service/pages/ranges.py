"""Times drawn by the server: what is served, the default and plain XLA with their ranges on one
line, and the parts of a time as a bar."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log

from autotune.domain.explanation import PARTS
from autotune.domain.outcome import Estimate
from autotune.domain.record import Record
from autotune.domain.xla_verdict import expected_range
from autotune.wording.facts import part_us
from autotune.wording.units import error_bar, micros
from autotune_service.pages.candidates import LEAST_US


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLine:
    """``at``, ``least`` and ``most`` in percent of the width, ``at`` None where only a range is
    known. ``kind`` is the class of its colour."""

    name: str
    kind: str
    at: float | None
    least: float
    most: float
    text: str


def time_lines(record: Record, *, with_default: bool = True) -> list[TimeLine]:
    """In microseconds, then placed on one logarithmic scale."""
    time_us, doubt = record.estimate.time_us, record.estimate.doubt
    found = [_line("served", "best", time_us, doubt, error_bar(record.estimate.error))]
    default = record.default
    if default.time_us and with_default and not record.is_default:
        found.append(_line("default", "default", default.time_us, 0.0, ""))
    if default.is_predicted and default.expected_us and with_default:
        error = default.expected_error or 0.0
        text = error_bar(error)
        found.append(_line("default, predicted", "default", default.expected_us, error, text))
    least, most = expected_range(record.baseline)
    bound = record.baseline.time_us or 0.0
    if most:
        text = f"{micros(max(least, bound))} to {micros(most)}"
        line = _line("plain XLA", "xla", record.baseline.expected_us or most, 0.0, "")
        found.append(replace(line, least=max(least, bound), most=most, text=text))
    elif bound:
        found.append(replace(_line("plain XLA", "xla", bound, 0.0, ""), text=f"≥ {micros(bound)}"))
    run = record.measurement
    own = run.of(record.config) if run else None
    if own and own.median_us:
        found.append(_line("served, measured", "best", own.median_us, 0.0, ""))
    return placed([one for one in found if one.least >= LEAST_US])


def _line(name: str, kind: str, time_us: float, doubt: float, bar: str) -> TimeLine:
    least, most = time_us * (1 - doubt), time_us * (1 + doubt)
    text = f"{micros(time_us)} {bar}".rstrip()
    return TimeLine(name=name, kind=kind, at=time_us, least=least, most=most, text=text)


def placed(found: Sequence[TimeLine]) -> list[TimeLine]:
    """From microseconds to percent of the width, on one logarithmic scale."""
    if not found:
        return []
    low, high = min(one.least for one in found), max(one.most for one in found)
    span = log(high / low) or 1.0

    def place(us: float) -> float:
        return round(3 + 94 * log(us / low) / span, 1)

    return [
        replace(one, at=one.at and place(one.at), least=place(one.least), most=place(one.most))
        for one in found
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBar:
    """``share``: percent of the longest time beside it."""

    number: int
    name: str
    share: float
    text: str


def bars(found: Sequence[Estimate | None]) -> list[list[PartBar]]:
    """The parts of each time, all on one scale."""
    longest = max((e.time_us for e in found if e), default=0.0)
    return [_bar(e, longest) if e and longest else [] for e in found]


def _bar(e: Estimate, longest: float) -> list[PartBar]:
    known = e.explanation
    return [
        PartBar(
            number=number,
            name=part,
            share=round(100 * known.part_us(part) / longest, 2),
            text=f"{part} {part_us(known.part_us(part))}",
        )
        for number, part in enumerate(PARTS)
        if known and known.part_us(part)
    ]
