"""What a search has come to."""

from dataclasses import dataclass

from autotune.domain.problem import Config
from autotune.domain.record import Evidence, Trial
from autotune.estimating.space import Space
from autotune.searching.subject import Subject


@dataclass(slots=True, kw_only=True)
class SearchResult:
    """All trials of the key, and how the search ended: exhausted, prediction, trials, timeout,
    interrupted.
    ``start_from``: configs that were given, which are among the trials. ``default``: what is
    predicted of the default, where it was not compiled."""

    subject: Subject
    space: Space
    trials: list[Trial]
    reused: int
    stopped_by: str
    seconds: float
    start_from: tuple[Config, ...] = ()
    default: Evidence | None = None
