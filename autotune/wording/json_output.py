"""Domain values as JSON for ``--json``: stable names, units in them."""

from typing import Any

from autotune.domain.browsing import SearchedKey
from autotune.domain.codec import to_data
from autotune.domain.record import GateState, Trial
from autotune.wording.outcome import reason_of


def trial_data(trial: Trial, state: GateState) -> dict[str, Any]:
    return {
        "number": trial.number,
        "config": to_data(trial.config),
        "outcome": to_data(trial.outcome),
        "reason": reason_of(trial.outcome),
        "state": state,
        "seconds": trial.seconds,
        "created_at": trial.created_at.isoformat(),
    }


def summary_data(summary: SearchedKey) -> dict[str, Any]:
    return {
        "key": to_data(summary.key),
        "outcomes": dict(summary.outcomes),
        "best_us": summary.best_us,
        "best_verified": summary.best_verified,
        "default_us": summary.default_us,
        "has_record": summary.has_record,
        "standing": summary.standing,
        "last_at": summary.last_at and summary.last_at.isoformat(),
    }
