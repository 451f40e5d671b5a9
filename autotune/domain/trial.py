"""One config evaluated for one key, and what the trials of a key came to."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from autotune.domain.config import Config
from autotune.domain.limits import Count, Share, When, Word
from autotune.domain.outcome import Estimate, Estimated, Outcome


class GateState(StrEnum):
    """What the gate said of a trial; it stands beside each time that is called the best, or a
    tie."""

    VERIFIED = "verified"
    NOT_VERIFIED = "not verified"
    """The gate was not asked, or could not say."""
    REFUSED = "refused as wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """``number`` counts from 0 within a key; 0 is the default config. ``seconds``: wall clock.
    ``pushed_by``: the name of the token that brought it, empty where it was searched."""

    number: Count
    config: Config
    outcome: Outcome
    seconds: Share
    created_at: When
    pushed_by: Word = ""

    @property
    def estimate(self) -> Estimate | None:
        """The estimate of a trial that can win; None for every other outcome."""
        return self.outcome.estimate if isinstance(self.outcome, Estimated) else None


def default_trial(trials: Sequence[Trial]) -> Trial | None:
    """Of the default config; None where it was not tried."""
    return next((trial for trial in trials if trial.number == 0), None)
