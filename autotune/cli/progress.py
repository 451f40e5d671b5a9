"""What a search shows while it runs."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from autotune.candidates.space import Space
from autotune.cli.output import echo
from autotune.cli.screen import PlainConsole
from autotune.domain.outcome import OutcomeKind
from autotune.domain.trial import Trial
from autotune.wording.units import micros, seconds

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
_ONE_LINE = Column(no_wrap=True)  # what has no room is cut off


def terminal_observer(*, silent: bool) -> "Silent":
    """A bar on a terminal, lines elsewhere, nothing when ``silent``."""
    if silent:
        return Silent()
    return Bar() if sys.stderr.isatty() else Lines()


class Silent:
    """For ``--json``: an ``Observer`` that is also a context manager and takes lines."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tracing(self, done: int, total: int) -> None:
        pass

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None:
        pass

    def trial_done(self, trial: Trial) -> None:
        pass

    def announce(self, line: str) -> None:
        pass


class Tally:
    """Counts by outcome, the best time beside the default's, and the slowest trial of this run."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.best_us: float | None = None
        self.default_us: float | None = None
        self.slowest_s = 0.0

    def reuse(self, earlier: Sequence[Trial]) -> None:
        """Trials of earlier runs count like those of this one."""
        for trial in earlier:
            self.add(trial)
        self.slowest_s = 0.0

    def add(self, trial: Trial) -> None:
        self.kinds[_SHORT[trial.outcome.kind]] += 1
        self.slowest_s = max(self.slowest_s, trial.seconds)
        if trial.estimate is None:
            return
        if trial.number == 0:
            self.default_us = trial.estimate.time_us
        if self.best_us is None or trial.estimate.time_us < self.best_us:
            self.best_us = trial.estimate.time_us

    def __str__(self) -> str:
        counts = " ".join(f"{kind} {n}" for kind, n in self.kinds.most_common())
        best = f"best {micros(self.best_us)}"
        if self.default_us and self.best_us:
            best += f" ({self.default_us / self.best_us:.2f}×)"
        slowest = f" · slowest {seconds(self.slowest_s)}" if self.slowest_s else ""
        return f"{counts} · {best}{slowest}"


class Bar(Silent):
    """A live bar on stderr."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=_ONE_LINE),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", table_column=_ONE_LINE),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=PlainConsole(stderr=True),
        )
        self._task = self._progress.add_task("starting", total=None, note="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tracing(self, done: int, total: int) -> None:
        self._progress.update(self._task, description="tracing", completed=done, total=total)

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None:
        self._progress.update(self._task, visible=False)
        self._progress.console.print(space_line(space, len(earlier)))
        self._tally.reuse(earlier)
        self._task = self._progress.add_task(
            "", total=goal, completed=len(earlier), note=str(self._tally)
        )

    def trial_done(self, trial: Trial) -> None:
        self._tally.add(trial)
        self._progress.update(self._task, advance=1, note=str(self._tally))

    def announce(self, line: str) -> None:
        self._progress.console.print(line)


class Lines(Silent):
    """A line for each new best and every few seconds: for logs."""

    _EVERY_S = 10.0

    def __init__(self) -> None:
        self._tally, self._done, self._goal = Tally(), 0, 0
        self._began = self._said = time.monotonic()

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None:
        self._done, self._goal = len(earlier), goal
        self._tally.reuse(earlier)
        self.announce(space_line(space, len(earlier)))

    def trial_done(self, trial: Trial) -> None:
        before = self._tally.best_us
        self._tally.add(trial)
        self._done += 1
        is_best = self._tally.best_us != before
        if is_best or time.monotonic() - self._said > self._EVERY_S or self._done == self._goal:
            self._said = time.monotonic()
            took = seconds(time.monotonic() - self._began)
            self.announce(f"{self._done}/{self._goal} in {took}: {self._tally}")

    def announce(self, line: str) -> None:
        echo(line, err=True)


def space_line(space: Space, reused: int) -> str:
    """How the raw space became candidates, in one line."""
    named = space.refused.most_common(_MOST_REASONS)
    others = space.refused.total() - sum(n for _, n in named)
    refused = ", ".join(f"{n} {reason}" for reason, n in named)
    refused += f", {others} for other reasons" * bool(others)
    parts = [f"{space.raw_points} points", f"{len(space.candidates)} candidates"]
    if space.sampled:
        parts.append("a random sample of a larger space")
    if refused:
        parts.append(f"refused: {refused}")
    if space.merged:
        parts.append(f"{space.merged} the same as others")
    if reused:
        parts.append(f"{reused} trials reused")
    return "; ".join(parts)
