"""One config evaluated for one key, and the published answer for a key."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from autotune.domain.config import Config, config_from_data, config_to_data
from autotune.domain.key import Key, key_from_data, key_to_data
from autotune.domain.measurement import Measurement, measurement_from_data, measurement_to_data
from autotune.domain.outcome import (
    Estimate,
    Outcome,
    estimate_from_data,
    outcome_from_data,
    outcome_to_data,
)
from autotune.domain.refusals import Refusals


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """``number`` counts from 0 within a key; 0 is the default config. ``seconds``: wall clock.
    ``pushed_by``: the name of the token that brought it, empty where it was searched."""

    number: int
    config: Config
    outcome: Outcome
    seconds: float
    created_at: datetime
    pushed_by: str = ""

    @property
    def estimate(self) -> Estimate | None:
        """The estimate of a trial that can win; None for every other outcome."""
        return getattr(self.outcome, "estimate", None) if self.outcome.kind == "estimated" else None


def trial_to_data(trial: Trial) -> dict[str, Any]:
    """Plain JSON data; ``trial_from_data`` is the inverse."""
    return {
        "number": trial.number,
        "config": config_to_data(trial.config),
        "outcome": outcome_to_data(trial.outcome),
        "seconds": trial.seconds,
        "created_at": trial.created_at.isoformat(),
        "pushed_by": trial.pushed_by,
    }


def trial_from_data(data: Mapping[str, Any]) -> Trial:
    return Trial(
        number=data["number"],
        config=config_from_data(data["config"]),
        outcome=outcome_from_data(data["outcome"]),
        seconds=data["seconds"],
        created_at=datetime.fromisoformat(data["created_at"]),
        pushed_by=data.get("pushed_by", ""),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What stands behind a time: a config (None: plain XLA), its estimate or why it has none.

    For plain XLA ``time_us`` is a lower bound and ``expected_us`` XLA's own estimate: neither is
    to be shown beside other times without saying so.
    """

    config: Config | None
    time_us: float | None
    note: str = ""
    expected_us: float | None = None


def evidence_to_data(evidence: Evidence) -> dict[str, Any]:
    """Plain JSON data; ``evidence_from_data`` is the inverse."""
    return {
        "config": None if evidence.config is None else config_to_data(evidence.config),
        "time_us": evidence.time_us,
        "expected_us": evidence.expected_us,
        "note": evidence.note,
    }


def evidence_from_data(data: Mapping[str, Any]) -> Evidence:
    config = data["config"] and config_from_data(data["config"])
    return Evidence(**{**data, "config": config})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The published answer for a key.

    ``config`` is the winner's, or the default's with the ``reason`` why nothing beat it.
    ``verification`` says in words how the result was checked. ``method`` is "estimated" or
    "measured"; the ``measurement`` is there too where it was void, or decided nothing.
    ``pushed_by``: the name of the token that brought it, empty where it was searched.
    """

    key: Key
    config: Config
    estimate: Estimate
    default: Evidence
    baseline: Evidence
    is_default: bool
    reason: str
    verification: str
    verified: bool
    trials: int
    method: str
    created_at: datetime
    pushed_by: str = ""
    measurement: Measurement | None = None

    @property
    def time_us(self) -> float:
        """The time by the record's own method: to be compared with those of the same one only."""
        timed = self.measurement and self.measurement.of(self.config)
        measured_us = timed.median_us if timed and self.method == "measured" else None
        return self.estimate.time_us if measured_us is None else measured_us


def record_to_data(record: Record) -> dict[str, Any]:
    """Plain JSON data; ``record_from_data`` is the inverse. Without a measurement it says nothing
    of one: older versions take it."""
    return {
        **measured_to_data(record),
        "key": key_to_data(record.key),
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
        "pushed_by": record.pushed_by,
    }


def measured_to_data(record: Record) -> dict[str, Any]:
    """The field of the measurement, where there is one."""
    found = record.measurement
    return {} if found is None else {"measurement": measurement_to_data(found)}


def measured_from_data(data: Mapping[str, Any]) -> Measurement | None:
    """The inverse of ``measured_to_data``."""
    found = data.get("measurement")
    return None if found is None else measurement_from_data(found)


def record_from_data(data: Mapping[str, Any]) -> Record:
    return Record(
        key=key_from_data(data["key"]),
        config=config_from_data(data["config"]),
        estimate=estimate_from_data(data["estimate"]),
        default=evidence_from_data(data["default"]),
        baseline=evidence_from_data(data["baseline"]),
        is_default=data["is_default"],
        reason=data["reason"],
        verification=data["verification"],
        verified=data["verified"],
        trials=data["trials"],
        method=data["method"],
        created_at=datetime.fromisoformat(data["created_at"]),
        pushed_by=data.get("pushed_by", ""),
        measurement=measured_from_data(data),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyResult:
    """All that a tuning machine knows of a key: its record, its trials, and where the rules leave
    nothing of its space."""

    record: Record
    trials: tuple[Trial, ...] = ()
    refusals: Refusals | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What became of a push: how many records and trials were new, how many records lost against
    the published one of their key, and the snapshot in force after it."""

    records: int
    trials: int
    lost: int
    snapshot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """How often a key that had no record was asked for. ``answer``: what was given instead, one
    of *toolchain*, *nearest*, *default*."""

    number: int
    key: Key
    answer: str
    count: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """An immutable set of records. Numbers only grow; 0, the empty one, is never stored.

    ``note`` says what made it, ``made_by`` with which token, empty for this machine's own work.
    """

    number: int
    created_at: datetime
    note: str = ""
    made_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What makes one snapshot of another: ``records``, newest first, come in, ``removed`` go."""

    records: Sequence[Record] = ()
    removed: Sequence[Key] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySummary:
    """What has been tried for a key. ``outcomes``: trials by kind; times in microseconds, None
    where there is no estimate."""

    key: Key
    outcomes: tuple[tuple[str, int], ...]
    best_us: float | None
    default_us: float | None
    has_record: bool
    last_at: datetime
