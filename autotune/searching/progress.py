"""Who watches a search while it runs, and what is counted of it."""

from collections import Counter
from collections.abc import Sequence
from typing import Self

from autotune.domain.trial import Trial
from autotune.estimating.space import Space


class ProgressObserver:
    """An ``Observer`` that is also a context manager and takes lines; this one shows nothing."""

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
