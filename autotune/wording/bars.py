"""What the terminal shows of searches while they run.

Bars on a terminal, lines for a log and for that of a job.
"""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from rich import progress
from rich.table import Column

from autotune.domain.key import Key
from autotune.domain.outcome import OutcomeKind
from autotune.domain.record import Trial
from autotune.estimating.space import Space
from autotune.publishing.progress import Tally
from autotune.publishing.publish import Publication
from autotune.publishing.task import NotTuned, TuningObserver, TuningResult
from autotune.wording.outcome import best_time, group_text
from autotune.wording.output import STARTING, echo
from autotune.wording.publication import publication_reason, times_default
from autotune.wording.screen import PlainConsole
from autotune.wording.units import counted, micros, ratio, seconds

_SHORT: dict[str, str] = {
    OutcomeKind.ESTIMATED: "ok",
    OutcomeKind.NOT_ESTIMATED: "no estimate",
    OutcomeKind.OUT_OF_VMEM: "VMEM",
    OutcomeKind.COMPILE_FAILED: "failed",
    OutcomeKind.TIMED_OUT: "timeout",
    OutcomeKind.CRASHED: "crashed",
    OutcomeKind.ILLEGAL: "illegal",
    OutcomeKind.WRONG_RESULT: "wrong",
}

_MOST_REASONS = 3


class SilentObserver(TuningObserver):
    """Shows nothing."""

    def describe_space(self, space: Space, reused: int) -> str:
        return space_line(space, reused)


class Pace:
    """When the next line of a log is due."""

    _EVERY_S = 5.0

    def __init__(self) -> None:
        self._last = time.monotonic()

    def is_due(self, *, now: bool = False) -> bool:
        """``now``: whatever the time is. The next one is due after a while."""
        due = now or time.monotonic() - self._last > self._EVERY_S
        self._last = time.monotonic() if due else self._last
        return due


def tracing_line(done: int, total: int) -> str:
    return f"tracing {total} configs of the space, {done / total:.0%}"


class Lines(SilentObserver):
    """A line for each new best and every few seconds: for logs. ``say`` takes them. ``done``: how
    many trials of ``goal``."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.tally, self.done, self.goal = Tally(), 0, 0
        self._began, self._pace = time.monotonic(), Pace()

    def tracing(self, done: int, total: int) -> None:
        if self._pace.is_due():
            self._say(tracing_line(done, total))

    def compiling(self) -> None:
        self._say(STARTING)

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None:
        self.done, self.goal = len(earlier), goal
        self.tally.reuse(earlier)
        self._say(space_line(space, len(earlier)))

    def trial_done(self, trial: Trial) -> None:
        before = self.tally.best_us
        self.tally.add(trial)
        self.done += 1
        is_news = self.tally.best_us != before or self.done == self.goal
        if self._pace.is_due(now=is_news):
            took = seconds(time.monotonic() - self._began)
            self._say(f"{self.done}/{self.goal} in {took}: {tally_line(self.tally)}")

    def announce(self, line: str) -> None:
        self._say(line)


def tally_line(tally: Tally) -> str:
    counts = " ".join(f"{_SHORT[kind]} {n}" for kind, n in tally.kinds.most_common())
    best = f"best {best_time(tally.best_us, verified=None)}"
    if tally.default_us and tally.best_us:
        best += f" ({tally.default_us / tally.best_us:.2f}×)"
    slowest = f" · slowest {seconds(tally.slowest_s)}" if tally.slowest_s else ""
    return f"{counts} · {best}{slowest}"


def space_line(space: Space, reused: int) -> str:
    """How the raw space became candidates, in one line."""
    named = space.refused.most_common(_MOST_REASONS)
    others = space.refused.total() - sum(n for _, n in named)
    refused = ", ".join(f"{n} {group_text(group)}" for group, n in named)
    refused += f", {others} for other reasons" * bool(others)
    parts = [counted(space.raw_points, "point"), counted(len(space.candidates), "candidate")]
    if space.untraced:
        parts.append(f"{len(space.untraced)} not traced yet: first those beside the fastest")
    if refused:
        parts.append(f"refused: {refused}")
    if space.merged:
        parts.append(f"{space.merged} the same as others")
    if reused:
        parts.append(f"{counted(reused, 'trial')} reused")
    return "; ".join(parts)


_ONE_LINE = Column(no_wrap=True)  # what has no room is cut off
_SHOWN = 4  # lines of problems under the bar of all


def terminal_observer(*, silent: bool) -> TuningObserver:
    """Of one search: a bar on a terminal, lines elsewhere, nothing when ``silent``."""
    if silent:
        return SilentObserver()
    return Bar() if sys.stderr.isatty() else Lines(partial(echo, err=True))


def workload_observer(*, silent: bool) -> TuningObserver:
    """Of many: a bar for all and a line for each problem that runs; elsewhere a line a problem."""
    if silent:
        return SilentObserver()
    return WorkloadBars() if sys.stderr.isatty() else WorkloadLines()


class _Live(SilentObserver):
    """Live on stderr, from the moment when compilers start."""

    _progress: progress.Progress

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def compiling(self) -> None:
        self._progress.start()

    def announce(self, line: str) -> None:
        self._progress.console.print(line)


class Bar(_Live):
    """The trials of one search."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._progress = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", table_column=_ONE_LINE),
            progress.BarColumn(bar_width=10),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[note]}", table_column=_ONE_LINE),
            progress.TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=PlainConsole(stderr=True),
        )
        self._task = self._progress.add_task(STARTING, total=None, note="")

    def tracing(self, done: int, total: int) -> None:
        self._progress.update(self._task, description="tracing", completed=done, total=total)

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None:
        self._progress.update(self._task, visible=False)
        self.announce(space_line(space, len(earlier)))
        self._tally.reuse(earlier)
        self._task = self._progress.add_task(
            "", total=goal, completed=len(earlier), note=tally_line(self._tally)
        )

    def trial_done(self, trial: Trial) -> None:
        self._tally.add(trial)
        self._progress.update(self._task, advance=1, note=tally_line(self._tally))


class WorkloadLines(SilentObserver):
    """A line for each problem, when it is over."""

    _total = _done = 0

    def compiling(self) -> None:
        self.announce(STARTING)

    def begin(self, total: int) -> None:
        self._total = total

    def of(self, key: Key) -> TuningObserver:
        return _ProblemObserver(self, key)

    def tuned(self, tuned: TuningResult) -> None:
        assert tuned.publication is not None
        self._done += 1
        outcome = outcome_line(tuned.publication)
        self.announce(f"{self._done}/{self._total} {problem_name(tuned.key)}: {outcome}")

    def not_tuned(self, refused: NotTuned) -> None:
        self.announce(str(refused.problem))

    def announce(self, line: str) -> None:
        echo(line, err=True)


class _ProblemObserver(SilentObserver):
    """What is said of a problem beside that it is over is said with its name."""

    def __init__(self, lines: WorkloadLines, key: Key) -> None:
        self._lines, self._key, self._pace = lines, key, Pace()

    def tracing(self, done: int, total: int) -> None:
        if self._pace.is_due():
            self.announce(tracing_line(done, total))

    def tuned(self, tuned: TuningResult) -> None:
        self._lines.tuned(tuned)

    def announce(self, line: str) -> None:
        self._lines.announce(f"{problem_name(self._key)}: {line}")


class WorkloadBars(_Live, WorkloadLines):
    """The trials of all problems, and of those that have run last."""

    def __init__(self) -> None:
        self._progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[note]}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
            console=PlainConsole(stderr=True),
        )
        self._all = self._progress.add_task("all trials", total=None, note=STARTING)
        self._recent: list[progress.TaskID] = []

    def of(self, key: Key) -> TuningObserver:
        return _ProblemBar(self, key)

    def show(self, note: str) -> None:
        """Beside the bar of all."""
        self._progress.update(self._all, note=note)

    def begin_problem(self, name: str, done: int, goal: int) -> progress.TaskID:
        total = (self._progress.tasks[0].total or 0) + goal
        self._progress.update(self._all, total=total, advance=done, note="")
        return self._progress.add_task(name, total=goal, completed=done, note="", visible=False)

    def advance(self, task: progress.TaskID, note: str) -> None:
        """Show those that have run last."""
        self._progress.update(self._all, advance=1)
        self._recent = [task, *(other for other in self._recent if other != task)]
        for hidden in self._recent[_SHOWN:]:
            self._progress.update(hidden, visible=False)
        self._recent = self._recent[:_SHOWN]
        self._progress.update(task, advance=1, note=note, visible=True)


class _ProblemBar(_ProblemObserver):
    """The trials of one problem."""

    def __init__(self, bars: WorkloadBars, key: Key) -> None:
        super().__init__(bars, key)
        self._bars, self._tally = bars, Tally()
        self._task: progress.TaskID | None = None

    def tracing(self, done: int, total: int) -> None:
        self._bars.show(f"tracing {problem_name(self._key)}: {done} of {total}")

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None:
        del space
        self._tally.reuse(earlier)
        self._task = self._bars.begin_problem(problem_name(self._key), len(earlier), goal)

    def trial_done(self, trial: Trial) -> None:
        self._tally.add(trial)
        assert self._task is not None
        self._bars.advance(self._task, tally_line(self._tally))


def problem_name(key: Key) -> str:
    return f"{key.kernel} {key.problem} on {key.chip}"


def outcome_line(publication: Publication) -> str:
    """The winner beside the default."""
    winner, default = publication.winner, publication.default
    if winner is None or winner.estimate is None:
        return publication_reason(publication)
    after_us = winner.estimate.time_us
    if default is None and publication.record is not None:
        return f"{micros(after_us)}, {times_default(publication.record.default, after_us)} default"
    before_us = default.time_us if default else None
    return f"{micros(after_us)}, {ratio(before_us, after_us)} default"
