"""What is told of a search while it runs, in lines: on a terminal, in a log, in that of a job."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Self

from autotune.domain.outcome import OutcomeKind
from autotune.domain.trial import Trial
from autotune.estimating.space import Space
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


class Silent(ProgressObserver):
    """For ``--json``."""


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


class Lines(ProgressObserver):
    """A line for each new best and every few seconds: for logs. ``say`` takes them. ``done``: how
    many trials of ``goal``."""

    _EVERY_S = 10.0

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.tally, self.done, self.goal = Tally(), 0, 0
        self._began = self._said = time.monotonic()

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None:
        self.done, self.goal = len(earlier), goal
        self.tally.reuse(earlier)
        self._say(space_line(space, len(earlier)))

    def trial_done(self, trial: Trial) -> None:
        before = self.tally.best_us
        self.tally.add(trial)
        self.done += 1
        is_best = self.tally.best_us != before
        if is_best or time.monotonic() - self._said > self._EVERY_S or self.done == self.goal:
            self._said = time.monotonic()
            took = seconds(time.monotonic() - self._began)
            self._say(f"{self.done}/{self.goal} in {took}: {self.tally}")

    def announce(self, line: str) -> None:
        self._say(line)


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
