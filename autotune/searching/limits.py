"""How far a search goes. Light: a command asks before it imports Optuna."""

from dataclasses import dataclass

from autotune.domain.job import DEFAULT_TRIALS


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """When a search stops. ``trials`` counts all trials of the key, earlier runs included.
    ``full``: not before, even where what was compiled predicts that nothing is left that
    is faster; who asks for more trials than the default wants that too."""

    trials: int = DEFAULT_TRIALS
    full: bool = False
    timeout_s: float | None = None

    def may_end_early(self, method: str) -> bool:
        return method == "gp" and not self.full and self.trials <= DEFAULT_TRIALS
