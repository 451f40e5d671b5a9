"""How far a search is: what is counted of it, and told to those who watch it from elsewhere."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from autotune.domain.errors import StoreError
from autotune.domain.job import Progress
from autotune.domain.key import Key
from autotune.domain.record import Trial
from autotune.domain.store import Searches
from autotune.estimating.space import Space
from autotune.searching.observer import SearchObserver

_EVERY_S = 1.0


class Tally:
    """Counts by outcome, the best time beside the default's, and the slowest trial of this run."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.best_us: float | None = None
        self.default_us: float | None = None
        self.slowest_s = 0.0

    def reuse(self, earlier: Sequence[Trial]) -> None:
        """Trials of earlier runs count like those of this one, and in the place of all before."""
        self.kinds.clear()
        for trial in earlier:
            self.add(trial)
        self.slowest_s = 0.0

    def add(self, trial: Trial) -> None:
        self.kinds[trial.outcome.kind] += 1
        self.slowest_s = max(self.slowest_s, trial.seconds)
        if trial.estimate is None:
            return
        if trial.number == 0:
            self.default_us = trial.estimate.time_us
        if self.best_us is None or trial.estimate.time_us < self.best_us:
            self.best_us = trial.estimate.time_us


class Reported(SearchObserver):
    """Around the observer of a search: tells ``searches`` what that hears. What cannot be told is
    not worth a search: the trials themselves are kept in any case. ``asked``: what is searched, as
    the command line says it; ``source``, ``choices``: as in
    ``Progress``. ``before``: trials of other choices."""

    def __init__(
        self,
        observer: SearchObserver,
        searches: Searches,
        key: Key,
        asked: str = "",
        source: str = "",
        choices: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observer, self._searches, self._key, self._clock = observer, searches, key, clock
        self._tally, self._space = Tally(), ""
        earlier = searches.progress(key)
        is_same = earlier.choices in ("", choices)
        self.before = earlier.before if is_same else earlier.done
        self._progress = Progress(asked=asked, source=source, choices=choices, before=self.before)
        self._reported = float("-inf")

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None:
        self._observer.space_ready(space, earlier, goal)
        self._tally.reuse(earlier)
        self._space = self._observer.describe_space(space, len(earlier))
        self._report(done=len(earlier), goal=goal, note="compiling")

    def trial_done(self, trial: Trial) -> None:
        self._observer.trial_done(trial)
        self._tally.add(trial)
        self._progress = replace(self._progress, done=self._progress.done + 1)
        is_last = self._progress.done >= self._progress.goal
        if is_last or self._clock() - self._reported >= _EVERY_S:
            self._report()

    def announce(self, line: str) -> None:
        self._observer.announce(line)
        self._report(note=line)

    def end(self, stopped_by: str = "") -> None:
        """``stopped_by``: of a search of the whole space."""
        ends = {"exhausted": stopped_by == "exhausted", "predicted": stopped_by == "prediction"}
        self._report(over=True, note="", **ends)

    def _report(self, *, over: bool = False, **changes: object) -> None:
        self._reported = self._clock()
        self._progress = replace(
            self._progress,
            best_us=self._tally.best_us,
            default_us=self._tally.default_us,
            **changes,  # type: ignore[arg-type]
        )
        with suppress(StoreError):
            self._searches.report(self._key, self._space, self._progress, over=over)
