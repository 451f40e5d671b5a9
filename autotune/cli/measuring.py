"""Measuring for the commands: on the attached TPU, and what is said where there is none; a
measurement beside its estimates."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from autotune.attached import attached_chips
from autotune.chip import Chip
from autotune.measurement import Measurement, Timed
from autotune.trial import Trial
from autotune.units import micros

if TYPE_CHECKING:
    from autotune.compiler.pool import CompilerPool
    from autotune.search.loop import Subject
    from autotune.search.measured import Measure


def new_measure(
    pool: "CompilerPool", subject: "Subject", *, device: int, seconds: float, seed: int,
    python: str, announce: Callable[[str], None],
) -> "Measure | None":  # fmt: skip
    """Times candidates on the attached TPU; None where it is none of the searched chip."""
    from autotune.measuring.child import Work, measuring_process
    from autotune.measuring.session import Limits, Session

    chip = subject.chip.chip
    if chip not in attached_chips():
        return None
    work = Work(ref=subject.ref, problem=subject.problem, chip=chip, seed=seed)
    return Session(
        pool, measuring_process("tpu", python), work, number=device, announce=announce,
        limits=Limits(seconds=seconds),
    ).measure  # fmt: skip


def why_estimated(chip: Chip) -> str:
    """Why nothing was measured, in one sentence."""
    found = attached_chips()
    if not found:
        return "Estimated, not measured: no TPU is attached to this machine."
    return f"Estimated, not measured: a {found[0]} is attached, no {chip}."


def measured_table(found: Measurement, trials: Sequence[Trial]) -> Table:
    """A row for each candidate: measurement, its ratio to the winner, and its estimate beside."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("measured", overflow="fold")
    for name in (found.method, "samples", "× winner", "interval", "estimated"):
        table.add_column(name, justify="right", no_wrap=True)
    for timed in found.timed:
        name = "plain XLA" if timed.config is None else str(timed.config)
        table.add_row(name + (f": {timed.refused}" if timed.refused else ""), *_cells(timed),
                      micros(_estimate_us(timed, trials)))  # fmt: skip
    return table


def measured_line(found: Measurement) -> str:
    """On what, how, how much."""
    end = f"void: {found.void}" if found.void else found.stopped_by
    return (
        f"Measured on {found.device}: {found.method}, {found.count} samples, {end}; the default "
        f"took {found.drift:+.1%} at the end."
    )


def _cells(timed: Timed) -> tuple[str, str, str, str]:
    if timed.ratio is None:
        return micros(timed.median_us), str(len(timed.samples_us)), "–", "–"
    interval = f"{timed.low:.3f}–{timed.high:.3f}"
    return (
        micros(timed.median_us), str(len(timed.samples_us)), f"{timed.ratio:.3f}",
        "–" if timed.low == timed.high else interval,
    )  # fmt: skip


def _estimate_us(timed: Timed, trials: Sequence[Trial]) -> float | None:
    trial = next((t for t in trials if t.config == timed.config), None)
    return trial.estimate.time_us if trial and trial.estimate else None
