"""What the commands show of a measurement, beside its estimates."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from autotune.domain.evidence import Measurement, Timed
from autotune.domain.record import Trial
from autotune.wording.units import micros


def measured_table(measurement: Measurement, trials: Sequence[Trial]) -> Table:
    """A row for each candidate: measurement, its ratio to the winner, and its estimate beside."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("measured", overflow="fold")
    for name in (measurement.method, "samples", "× winner", "interval", "estimated"):
        table.add_column(name, justify="right", no_wrap=True)
    for timed in measurement.timed:
        name = "plain XLA" if timed.config is None else str(timed.config)
        table.add_row(
            name + (f": {timed.refused}" if timed.refused else ""),
            *_cells(timed),
            micros(_estimate_us(timed, trials)),
        )
    return table


def measured_line(measurement: Measurement) -> str:
    """On what, how, how much."""
    end = f"void: {measurement.void}" if measurement.void else measurement.stopped_by
    return (
        f"Measured on {measurement.device}: {measurement.method}, "
        f"{measurement.count} samples, {end}; the default took {measurement.drift:+.1%} at the end."
    )


def _cells(timed: Timed) -> tuple[str, str, str, str]:
    if timed.ratio is None:
        return micros(timed.median_us), str(len(timed.samples_us)), "–", "–"
    interval = f"{timed.low:.3f}–{timed.high:.3f}"
    return (
        micros(timed.median_us),
        str(len(timed.samples_us)),
        f"{timed.ratio:.3f}",
        "–" if timed.low == timed.high else interval,
    )


def _estimate_us(timed: Timed, trials: Sequence[Trial]) -> float | None:
    trial = next((t for t in trials if t.config == timed.config), None)
    return trial.estimate.time_us if trial and trial.estimate else None
