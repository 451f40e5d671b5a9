"""How fast a published config is: against the kernel's default and plain XLA, by estimate and by
measurement. What was measured stands beside the estimates, and is never mixed with them.

The lines of ``autotune explain`` stand here, too, with a cell for each estimate,
and times drawn by the server: with their ranges on one line, and their parts as a bar.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log

from autotune.domain.comparison import XlaVerdict, by_estimate, by_measurement, expected_range
from autotune.domain.evidence import MeasuredConfig, Timed
from autotune.domain.explanation import PARTS
from autotune.domain.outcome import Estimate
from autotune.domain.problem import Config
from autotune.domain.record import Method, Record
from autotune.wording.facts import FACTS
from autotune.wording.measurement import against_others, measured_line, run_line
from autotune.wording.publication import VERDICTS, estimated_baseline, measured_baseline
from autotune.wording.units import error_bar, micros, part_us
from autotune_service.pages.candidates import LEAST_US, ShownTrial


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


def time_lines(record: Record) -> list[TimeLine]:
    """In microseconds, then placed on one logarithmic scale."""
    e = record.estimate
    lines = [_line("served", "best", e.time_us, e.doubt, error_bar(e.error))]
    if record.default.time_us and not record.is_default:
        lines.append(_line("default", "default", record.default.time_us))
    if record.default.is_predicted and record.default.expected_us:
        error = record.default.expected_error or 0.0
        us, bar = record.default.expected_us, error_bar(error)
        lines.append(_line("default, predicted", "default", us, error, bar))
    lines += _xla_lines(record)
    run = record.measurement
    measured = run.of(record.config) if run else None
    if measured and measured.median_us:
        lines.append(_line("served, measured", "best", measured.median_us))
    return placed([line for line in lines if line.least >= LEAST_US])


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
    known = [e.explanation if e else None for e in estimates]
    return [
        bar([(part, why.part_us(part)) for part in PARTS] if why else [], longest) for why in known
    ]


def bar(times: Sequence[tuple[str, float]], longest: float) -> list[PartBar]:
    """Times by name, in this order."""
    return [
        PartBar(
            number=number,
            name=name,
            share=round(100 * us / longest, 2),
            text=f"{name} {part_us(us)}",
        )
        for number, (name, us) in enumerate(times)
        if us > 0 and longest
    ]


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


_MOST_SAMPLES = 500  # on a page; the exports have all

Facts = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Times as fast; None where it is not known. ``predicted_over_default``: where the default was
    not compiled. Plain XLA has a lower bound of its time, so
    ``over_xla_least`` is what is certain, and an estimate; ``xla`` says so in words.
    ``measured_*``: by the run that decided; the others are estimates."""

    over_default: float | None
    predicted_over_default: float | None
    over_xla_least: float | None
    over_xla_own: float | None
    verdict: XlaVerdict
    xla: str
    measured_us: float | None = None
    measured_over_default: float | None = None
    measured_over_xla: float | None = None

    @property
    def xla_verdict(self) -> str:
        """Without the figures."""
        return VERDICTS[self.verdict]

    @property
    def loses(self) -> bool:
        """Whether plain XLA is faster: as measured, where it was, else by the estimate."""
        times = self.over_xla_own if self.measured_over_xla is None else self.measured_over_xla
        return times is not None and times < 1


def speed(record: Record) -> Speed:
    time_us, default, baseline = record.estimate.time_us, record.default, record.baseline
    measured = _measured(record)
    verdict = by_estimate(record.estimate, baseline)
    words = estimated_baseline(record.estimate, baseline)
    times = measured.get("measured_over_xla")
    other = record.measurement.baseline if record.measurement else None
    if times is not None and other is not None:
        verdict = by_measurement(other)
        words = f"{measured_baseline(verdict, other, times)}; by estimate, {words}"
    return Speed(
        over_default=over(default.time_us, time_us),
        predicted_over_default=over(default.expected_us, time_us) if default.is_predicted else None,
        over_xla_least=over(baseline.time_us, time_us),
        over_xla_own=over(baseline.expected_us, time_us),
        verdict=verdict,
        xla=words,
        **measured,
    )


def _measured(record: Record) -> dict[str, float | None]:
    """Nothing where the measurement did not decide."""
    run = record.measurement
    winner = run.of(record.config) if run and record.method == Method.MEASURED else None
    if run is None or winner is None:
        return {}
    default = None if record.default.config is None else run.of(record.default.config)
    return {
        "measured_us": winner.median_us,
        "measured_over_default": run.times_as_fast(winner, default),
        "measured_over_xla": run.times_as_fast(winner, run.baseline),
    }


def over(other_us: float | None, time_us: float | None) -> float | None:
    return other_us / time_us if other_us and time_us and time_us >= LEAST_US else None


def measured_rows(
    record: Record | None, shown: Sequence[ShownTrial]
) -> list[tuple[Timed, ShownTrial | None]]:
    """Everything that the run of a record has timed, the fastest first; its trial, where that is
    drawn."""
    run = record.measurement if record else None
    by_config: dict[Config | None, ShownTrial] = {c.trial.config: c for c in shown}
    return [(timed, by_config.get(timed.config)) for timed in run.timed] if run else []


def measured_facts(
    measured: MeasuredConfig | None, record: Record | None, estimate_us: float | None
) -> Facts:
    """Of one config, for the page of its trial."""
    if measured is None or record is None:
        return []
    run, timed = measured
    facts = [
        ("median", measured_line(measured, estimate_us)),
        ("against the others", " ".join(against_others(measured, record.default.config))),
        (f"{len(timed.samples_us)} samples, in the order taken", _samples(timed.samples_us)),
        ("note", timed.note),
        ("the run", run_line(run)),
    ]
    return [(name, text) for name, text in facts if text]


def _samples(samples_us: Sequence[float]) -> str:
    if not samples_us:
        return ""
    shown = ", ".join(f"{us:,.4g}" for us in samples_us[:_MOST_SAMPLES])
    more = len(samples_us) - _MOST_SAMPLES
    rest = f" and {more:,} more" if more > 0 else ""
    return f"{shown}{rest} µs; {micros(min(samples_us))} to {micros(max(samples_us))}"
