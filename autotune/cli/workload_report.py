"""What the tuning of a workload found, by problem and for the whole model."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.table import Table

from autotune.cli.options import print_json
from autotune.cli.output import echo
from autotune.cli.screen import screen
from autotune.domain.codec import to_data
from autotune.domain.record import Evidence
from autotune.domain.trial import Trial, default_trial
from autotune.domain.workload import (
    InvalidProblem,
    TunedEntry,
    TunedWorkload,
    UndeclaredKernel,
    weighted_times,
)
from autotune.publishing.publish import Publication
from autotune.publishing.whole_model import ModelProblem
from autotune.searching.result import SearchResult
from autotune.wording.publication import default_time, times_default, verified_label
from autotune.wording.units import error_bar, mebibytes, micros, ratio

_LOG_WIDTH = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedProblem:
    """``published``: None where it was interrupted."""

    problem: ModelProblem
    result: SearchResult
    published: Publication | None

    @property
    def before(self) -> Trial | None:
        """What the model runs today: the config that the workload names, else the default."""
        given = self.result.start_from[:1] if self.problem.asked.config else ()
        today = [t for t in self.result.trials if t.config in given]
        return today[0] if today else default_trial(self.result.trials)

    @property
    def predicted(self) -> Evidence | None:
        """Of the default, where the model runs that and it was not compiled."""
        return None if self.before else self.result.default

    @property
    def before_us(self) -> float | None:
        return self.predicted.expected_us if self.predicted else _time_us(self.before)

    @property
    def before_error(self) -> float | None:
        return self.predicted.expected_error if self.predicted else None

    @property
    def after_us(self) -> float | None:
        return _time_us(self.published.winner) if self.published else None


def _time_us(trial: Trial | None) -> float | None:
    return trial.estimate.time_us if trial and trial.estimate else None


def print_workload(
    tuned: Sequence[TunedProblem],
    invalid: Sequence[InvalidProblem],
    undeclared: Sequence[UndeclaredKernel],
    place: str,
    *,
    as_json: bool,
) -> None:
    """A table by problem, the sums by chip, and what could not be tuned."""
    if as_json:
        print_json(
            {
                "problems": [_problem_data(one) for one in tuned],
                "model": model_times(tuned),
                "invalid": [asdict(one) for one in invalid],
                "undeclared": [asdict(one) for one in undeclared],
            }
        )
        return
    console = screen(_LOG_WIDTH)
    if tuned:
        console.print(_table(tuned))
    for row in model_times(tuned):
        left_out = row["problems"] - row["timed"]
        predicted = row["predicted"]
        echo(
            f"All {row['problems']} problems on {row['chip']} with jax {row['jax']}, by weight: "
            f"{micros(row['before_us'])} before, {micros(row['after_us'])} after, "
            f"{ratio(row['before_us'], row['after_us'])}"
            + f" {error_bar(row['before_error'])}" * bool(predicted)
            + f" ({left_out} without a time left out)" * bool(left_out)
            + f" ({predicted} of those before are predicted)" * bool(predicted)
        )
    for one in invalid:
        echo(f"not tuned: {one}")
    for kernel in undeclared:
        echo(undeclared_line(kernel))
    echo(f"Kept in {place}")


def tuned_workload(
    name: str,
    tuned: Sequence[TunedProblem],
    invalid: Sequence[InvalidProblem],
    undeclared: Sequence[UndeclaredKernel],
) -> TunedWorkload:
    """What is kept of it."""
    entries = [
        TunedEntry(
            key=one.result.subject.key,
            weight=one.problem.weight,
            before_us=one.before_us,
            before_error=one.before_error,
            reason="" if one.published and one.published.record else _why(one) or "interrupted",
        )
        for one in tuned
    ]
    missing = [f"not tuned: {one}" for one in invalid] + list(map(undeclared_line, undeclared))
    return TunedWorkload(name=name, entries=tuple(entries), missing=tuple(missing))


def undeclared_line(kernel: UndeclaredKernel) -> str:
    grid, blocks = (
        "x".join(map(str, kernel.grid)),
        " ".join("[" + ",".join(map(str, block)) + "]" for block in kernel.blocks),
    )
    limit = f" of {mebibytes(kernel.limit_bytes)}" if kernel.limit_bytes else ""
    return (
        f"not declared: {kernel.name}, {kernel.weight:g} times"
        + f", grid {grid}" * bool(grid)
        + f", blocks {blocks}" * bool(blocks)
        + f", VMEM {mebibytes(kernel.vmem_bytes)}{limit}" * bool(kernel.vmem_bytes)
    )


def model_times(tuned: Sequence[TunedProblem]) -> list[dict[str, Any]]:
    """The weighted times of all problems that have both, by chip and toolchain."""
    found = []
    for chip, jax in dict.fromkeys(_target(one) for one in tuned):
        some = [one for one in tuned if _target(one) == (chip, jax)]
        times = weighted_times(
            (one.problem.weight, one.before_us, one.before_error, one.after_us) for one in some
        )
        found.append({"chip": chip, "jax": jax, "problems": len(some), **asdict(times)})
    return found


def _target(one: TunedProblem) -> tuple[str, str]:
    key = one.result.subject.key
    return key.chip.value, key.toolchain.jax


def _problem_data(one: TunedProblem) -> dict[str, Any]:
    published = one.published
    assert published is not None
    return {
        "line": one.problem.asked.line,
        "key": to_data(one.result.subject.key),
        "weight": one.problem.weight,
        "before": one.before and to_data(one.before.config),
        "before_us": one.before_us,
        "before_predicted_error": one.before_error,
        "after_us": one.after_us,
        "trials": len(one.result.trials),
        "stopped_by": one.result.stopped_by,
        "verification_s": published.verification_s,
        "record": published.record and to_data(published.record),
        "reason": published.reason,
    }


def _table(tuned: Sequence[TunedProblem]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("kernel", "problem", "chip"):
        table.add_column(name, overflow="fold")
    for name in ("weight", "trials", "before", "after", "×"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("config", "evidence"):
        table.add_column(name, overflow="fold")
    for one in tuned:
        key, record = one.result.subject.key, one.published and one.published.record
        table.add_row(
            key.kernel,
            str(key.problem),
            key.chip.value,
            f"{one.problem.weight:g}",
            str(len(one.result.trials)),
            default_time(one.predicted) if one.predicted else micros(one.before_us),
            micros(one.after_us),
            times_default(one.predicted, one.after_us)
            if one.predicted
            else ratio(one.before_us, one.after_us),
            ("default" if record.is_default else str(record.config)) if record else "–",
            f"{record.method}, {verified_label(record)}" if record else _why(one),
        )
    return table


def _why(one: TunedProblem) -> str:
    return one.published.reason if one.published else ""
