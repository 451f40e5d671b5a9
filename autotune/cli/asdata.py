"""Domain values as JSON for ``--json``: stable names, units in them."""

from dataclasses import asdict
from typing import Any

from autotune.config import config_to_data
from autotune.key import Key
from autotune.outcome import outcome_to_data
from autotune.problem import problem_to_data
from autotune.trial import KeySummary, Record, Trial, evidence_to_data


def key_data(key: Key) -> dict[str, Any]:
    return {
        "kernel": key.kernel,
        "fingerprint": key.fingerprint,
        "problem": problem_to_data(key.problem),
        "chip": key.chip.value,
        "toolchain": asdict(key.toolchain),
    }


def trial_data(trial: Trial) -> dict[str, Any]:
    return {
        "number": trial.number,
        "config": config_to_data(trial.config),
        "outcome": outcome_to_data(trial.outcome),
        "reason": trial.outcome.reason,
        "seconds": trial.seconds,
        "created_at": trial.created_at.isoformat(),
    }


def record_data(record: Record) -> dict[str, Any]:
    return {
        "key": key_data(record.key),
        "config": config_to_data(record.config),
        "estimate": asdict(record.estimate),
        "default": evidence_to_data(record.default),
        "baseline": evidence_to_data(record.baseline),
        "is_default": record.is_default,
        "reason": record.reason,
        "verified": record.verified,
        "verification": record.verification,
        "trials": record.trials,
        "method": record.method,
        "created_at": record.created_at.isoformat(),
    }


def summary_data(summary: KeySummary) -> dict[str, Any]:
    return {
        "key": key_data(summary.key),
        "outcomes": dict(summary.outcomes),
        "best_us": summary.best_us,
        "default_us": summary.default_us,
        "has_record": summary.has_record,
        "last_at": summary.last_at.isoformat(),
    }
