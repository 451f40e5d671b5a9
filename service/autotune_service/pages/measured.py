"""What was measured, beside the estimates: never mixed with them."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.domain.config import Config
from autotune.domain.measurement import MeasuredConfig, Timed
from autotune.domain.record import Record
from autotune.wording.measurement import (
    against_others,
    measured_line,
    ratio_interval,
    run_line,
    told_apart,
)
from autotune.wording.units import micros
from autotune_service.pages.candidates import ShownTrial

_MOST_SAMPLES = 500  # on a page; the exports have all

Rows = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """A config of a run, plain XLA without one; its trial, where that is drawn."""

    config: Config | None
    timed: Timed
    trial: ShownTrial | None
    is_published: bool
    is_default: bool

    @property
    def interval(self) -> str:
        return ratio_interval(self.timed)

    @property
    def told_apart(self) -> str:
        """From the fastest."""
        return told_apart(self.timed)


def rows(record: Record | None, shown: Sequence[ShownTrial]) -> list[MeasuredRow]:
    """Everything that the run of a record has timed, the fastest first."""
    run = record.measurement if record else None
    if record is None or run is None:
        return []
    by_config: dict[Config | None, ShownTrial] = {c.config: c for c in shown}
    return [
        MeasuredRow(
            config=timed.config,
            timed=timed,
            trial=by_config.get(timed.config),
            is_published=timed.config == record.config,
            is_default=timed.config is not None and timed.config == record.default.config,
        )
        for timed in run.timed
    ]


def facts(
    measured: MeasuredConfig | None, record: Record | None, estimate_us: float | None
) -> Rows:
    """Of one config, for the page of its trial."""
    if measured is None or record is None:
        return []
    run, timed = measured
    lines = [
        ("median", measured_line(measured, estimate_us)),
        ("against the others", " ".join(against_others(measured, record.default.config))),
        (f"{len(timed.samples_us)} samples, in the order taken", _samples(timed)),
        ("note", timed.note),
        ("the run", run_line(run)),
    ]
    return [(name, text) for name, text in lines if text]


def _samples(timed: Timed) -> str:
    if not timed.samples_us:
        return ""
    shown = ", ".join(f"{us:,.4g}" for us in timed.samples_us[:_MOST_SAMPLES])
    more = len(timed.samples_us) - _MOST_SAMPLES
    low, high = micros(min(timed.samples_us)), micros(max(timed.samples_us))
    rest = f" and {more:,} more" if more > 0 else ""
    return f"{shown}{rest} µs; {low} to {high}"
