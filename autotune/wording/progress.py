"""A search while it runs, in lines: for a log, and for that of a job."""

import time
from collections.abc import Callable, Sequence

from autotune.domain.outcome import OutcomeKind
from autotune.domain.record import Trial
from autotune.estimating.space import Space
from autotune.publishing.progress import Tally
from autotune.publishing.task import TuningObserver
from autotune.wording.outcome import best_time, group_text
from autotune.wording.units import seconds

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


class Lines(SilentObserver):
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
