"""Who watches a search: a progress bar, a log, a lease, a test."""

from collections.abc import Sequence

from autotune.domain.record import Trial
from autotune.estimating.space import Space


class SearchObserver:
    """Hears of each step; this one does nothing with it."""

    def tracing(self, done: int, total: int) -> None:
        """So many of the configs of the space are traced."""

    def space_ready(self, space: Space, earlier: Sequence[Trial], goal: int) -> None:
        """The search begins. ``earlier``: the trials of earlier runs; ``goal``: how many trials
        there will be, those included."""

    def describe_space(self, space: Space, reused: int) -> str:
        """The space in words, for those who watch from elsewhere. ``reused``: earlier trials."""
        del space, reused
        return ""

    def trial_done(self, trial: Trial) -> None:
        """A trial is kept."""

    def announce(self, line: str) -> None:
        """What is to be said of it, as a line."""

    def is_stopped(self) -> bool:
        """Asked every second; true ends the search as Ctrl-C does."""
        return False
