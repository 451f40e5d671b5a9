"""What a search shows while it runs."""

import sys
from collections.abc import Sequence
from functools import partial
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

from autotune.cli.output import echo
from autotune.cli.screen import PlainConsole
from autotune.domain.trial import Trial
from autotune.estimating.space import Space
from autotune.searching.progress import ProgressObserver, Tally
from autotune.wording.progress import Lines, space_line, tally_line

_ONE_LINE = Column(no_wrap=True)  # what has no room is cut off


def terminal_observer(*, silent: bool) -> ProgressObserver:
    """A bar on a terminal, lines elsewhere, nothing when ``silent``."""
    if silent:
        return ProgressObserver()
    return Bar() if sys.stderr.isatty() else Lines(partial(echo, err=True))


class Bar(ProgressObserver):
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
            "", total=goal, completed=len(earlier), note=tally_line(self._tally)
        )

    def trial_done(self, trial: Trial) -> None:
        self._tally.add(trial)
        self._progress.update(self._task, advance=1, note=tally_line(self._tally))

    def announce(self, line: str) -> None:
        self._progress.console.print(line)
