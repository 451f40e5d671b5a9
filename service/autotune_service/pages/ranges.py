"""Times drawn by the server: what is served, the default and plain XLA with their ranges on one
line, and the parts of a time as a bar."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log

from autotune.domain.explanation import PARTS
from autotune.domain.outcome import Estimate
from autotune.domain.record import Record
from autotune.domain.xla_verdict import expected_range
from autotune.wording.units import error_bar, micros, part_us
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
    e = record.estimate
    lines = [_line("served", "best", e.time_us, e.doubt, error_bar(e.error))]
    if with_default:
        lines += _default_lines(record)
    lines += _xla_lines(record)
    run = record.measurement
    measured = run.of(record.config) if run else None
    if measured and measured.median_us:
        lines.append(_line("served, measured", "best", measured.median_us))
    return placed([line for line in lines if line.least >= LEAST_US])


def _default_lines(record: Record) -> Iterator[TimeLine]:
    default = record.default
    if default.time_us and not record.is_default:
        yield _line("default", "default", default.time_us)
    if default.is_predicted and default.expected_us:
        error = default.expected_error or 0.0
        bar = error_bar(error)
        yield _line("default, predicted", "default", default.expected_us, error, bar)


def _xla_lines(record: Record) -> Iterator[TimeLine]:
    """From the bound, which is certain, to the slowest that XLA's own estimate allows."""
    least, most = expected_range(record.baseline)
    bound = record.baseline.time_us or 0.0
    least = max(least, bound)
    if most:
        line = _line("plain XLA", "xla", record.baseline.expected_us or most)
        yield replace(line, least=least, most=most, text=f"{micros(least)} to {micros(most)}")
    elif bound:
        yield replace(_line("plain XLA", "xla", bound), text=f"≥ {micros(bound)}")


def _line(name: str, kind: str, time_us: float, doubt: float = 0.0, bar: str = "") -> TimeLine:
    least, most = time_us * (1 - doubt), time_us * (1 + doubt)
    text = f"{micros(time_us)} {bar}".rstrip()
    return TimeLine(name=name, kind=kind, at=time_us, least=least, most=most, text=text)


def placed(lines: Sequence[TimeLine]) -> list[TimeLine]:
    """From microseconds to percent of the width, on one logarithmic scale."""
    if not lines:
        return []
    low, high = min(line.least for line in lines), max(line.most for line in lines)
    span = log(high / low) or 1.0

    def place(us: float) -> float:
        return round(3 + 94 * log(us / low) / span, 1)

    return [
        replace(line, at=line.at and place(line.at), least=place(line.least), most=place(line.most))
        for line in lines
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBar:
    """``share``: percent of the longest time beside it."""

    number: int
    name: str
    share: float
    text: str


def bars(estimates: Sequence[Estimate | None]) -> list[list[PartBar]]:
    """The parts of each time, all on one scale."""
    longest = max((e.time_us for e in estimates if e), default=0.0)
    return [_bar(e, longest) if e and longest else [] for e in estimates]


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
