"""What the tuning of a workload shows while it runs."""

# ruff: noqa: ARG002 (not every observer says everything)

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from autotune.cli.output import echo
from autotune.cli.screen import PlainConsole
from autotune.domain.trial import Trial
from autotune.estimating.space import Space
from autotune.publishing.publish import Publication
from autotune.publishing.whole_model import ModelProblem
from autotune.searching.progress import ProgressObserver, Tally
from autotune.searching.subject import Subject
from autotune.wording.progress import tally_line
from autotune.wording.publication import times_default
from autotune.wording.units import micros, ratio

_SHOWN = 4  # lines of problems under the bar


def workload_progress(*, silent: bool, total: int) -> "WorkloadLines":
    """A bar for all and a line for each problem that runs; elsewhere a line a problem."""
    if silent:
        return WorkloadLines(total, silent=True)
    return WorkloadBars(total) if sys.stderr.isatty() else WorkloadLines(total)


class WorkloadLines(AbstractContextManager["WorkloadLines"]):
    """One line a problem, when it is published."""

    def __init__(self, total: int, *, silent: bool = False) -> None:
        self._total, self._silent, self._done = total, silent, 0

    def __exit__(self, *_: object) -> None:
        pass

    def tracing(self, problem: ModelProblem, done: int, of: int) -> None:
        pass

    def of(self, problem: ModelProblem) -> ProgressObserver:
        """Who watches one problem."""
        return ProgressObserver()

    def published(self, subject: Subject, found: Publication) -> None:
        self._done += 1
        self.announce(f"{self._done}/{self._total} {name_of(subject)}: {outcome_line(found)}")

    def announce(self, line: str) -> None:
        if not self._silent:
            echo(line, err=True)


class WorkloadBars(WorkloadLines):
    """Live, on stderr."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=PlainConsole(stderr=True),
        )
        self._all = self._progress.add_task("all trials", total=None, note="")
        self._recent: list[TaskID] = []

    def __enter__(self) -> "WorkloadBars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tracing(self, problem: ModelProblem, done: int, of: int) -> None:
        note = f"tracing {name_of(problem.subject)}: {done} of {of}"
        self._progress.update(self._all, note=note)

    def of(self, problem: ModelProblem) -> "_ProblemLine":
        return _ProblemLine(self, name_of(problem.subject))

    def announce(self, line: str) -> None:
        self._progress.console.print(line)

    def begin(self, name: str, done: int, goal: int) -> TaskID:
        """Count the trials of a problem among all."""
        all_trials = self._progress.tasks[0]
        total = (all_trials.total or 0) + goal
        self._progress.update(self._all, total=total, advance=done, note="")
        return self._progress.add_task(name, total=goal, completed=done, note="", visible=False)

    def advance(self, task: TaskID, note: str) -> None:
        """Show those that have run last."""
        self._progress.update(self._all, advance=1)
        self._recent = [task, *(one for one in self._recent if one != task)]
        for one in self._recent[_SHOWN:]:
            self._progress.update(one, visible=False)
        self._recent = self._recent[:_SHOWN]
        self._progress.update(task, advance=1, note=note, visible=True)


class _ProblemLine(ProgressObserver):
    def __init__(self, bars: WorkloadBars, name: str) -> None:
        self._bars, self._name, self._tally = bars, name, Tally()
        self._task: TaskID | None = None

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None:
        self._tally.reuse(earlier)
        self._task = self._bars.begin(self._name, len(earlier), goal)

    def trial_done(self, trial: Trial) -> None:
        self._tally.add(trial)
        assert self._task is not None
        self._bars.advance(self._task, tally_line(self._tally))


def name_of(subject: Subject) -> str:
    return f"{subject.spec.name} {subject.problem} on {subject.chip.chip}"


def outcome_line(found: Publication) -> str:
    """The winner beside the default."""
    winner, default = found.winner, found.default
    if winner is None or winner.estimate is None:
        return found.reason
    after_us = winner.estimate.time_us
    if default is None and found.record is not None:
        return f"{micros(after_us)}, {times_default(found.record.default, after_us)} default"
    before_us = default.estimate.time_us if default and default.estimate else None
    return f"{micros(after_us)}, {ratio(before_us, after_us)} default"
