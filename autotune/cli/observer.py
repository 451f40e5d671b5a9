"""What a search shows on the terminal, also told to those who watch it from elsewhere."""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from autotune.cli.output import echo
from autotune.domain.errors import StoreError
from autotune.domain.job import Progress
from autotune.domain.key import Key
from autotune.domain.trial import Trial
from autotune.estimating.space import Space
from autotune.searching.progress import ProgressObserver, Tally
from autotune.wording.progress import space_line
from autotune_db.searches import SqlSearches

if TYPE_CHECKING:
    from autotune.searching.result import SearchResult

_EVERY_S = 1.0


class ReportingObserver:
    """An ``Observer`` around the terminal's. What cannot be told is not worth a search: the trials
    themselves are kept in any case. ``asked``: what is searched, as the command line says it."""

    def __init__(
        self,
        terminal: ProgressObserver,
        searches: SqlSearches,
        key: Key,
        asked: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terminal, self._searches, self.key, self._clock = terminal, searches, key, clock
        self._tally, self._progress, self._space = Tally(), Progress(asked=asked), ""
        self._said = float("-inf")

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None:
        self._terminal.space_ready(space, earlier, goal)
        self._tally.reuse(earlier)
        self._space = space_line(space, len(earlier))
        self._tell(done=len(earlier), goal=goal, note="compiling")

    def trial_done(self, trial: Trial) -> None:
        self._terminal.trial_done(trial)
        self._tally.add(trial)
        self._progress = replace(self._progress, done=self._progress.done + 1)
        if self._clock() - self._said >= _EVERY_S or self._progress.done >= self._progress.goal:
            self._tell()

    def announce(self, line: str) -> None:
        self._terminal.announce(line)
        self._tell(note=line)

    def end(self, stopped_by: str = "") -> None:
        """``stopped_by``: of a search of the whole space."""
        ends = {"exhausted": stopped_by == "exhausted", "predicted": stopped_by == "prediction"}
        self._tell(over=True, note="", **ends)

    def _tell(self, *, over: bool = False, **changes: object) -> None:
        self._said = self._clock()
        self._progress = replace(
            self._progress,
            best_us=self._tally.best_us,
            default_us=self._tally.default_us,
            **changes,  # type: ignore[arg-type]
        )
        try:
            self._searches.report(self.key, self._space, self._progress, over=over)
        except StoreError:
            return


def say_interrupted(results: "Sequence[SearchResult]", place: str) -> NoReturn:
    """From here on only cleaning up is left: another Ctrl-C must not cut it short."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    trials = sum(len(result.trials) for result in results)
    echo(
        f"interrupted: {trials} trials are kept in {place}, the same command resumes",
        err=True,
    )
    sys.exit(130)
