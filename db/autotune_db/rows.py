"""Domain values to column values and back; equal to what went in."""

from dataclasses import asdict
from math import isfinite
from typing import Any

from sqlalchemy import Row

from autotune.domain.chip import Chip
from autotune.domain.codec import from_data, to_data
from autotune.domain.config import Config
from autotune.domain.job import Job, Progress, Request, State
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key, identity_of
from autotune.domain.measurement import Measurement
from autotune.domain.miss import Miss
from autotune.domain.outcome import (
    Estimate,
    Estimated,
    Outcome,
)
from autotune.domain.problem import Problem
from autotune.domain.record import Evidence, Method, Record
from autotune.domain.record_check import RecordCheck
from autotune.domain.refusals import Refusals
from autotune.domain.rule import ShapeRule
from autotune.domain.snapshot import Snapshot
from autotune.domain.token import Token
from autotune.domain.toolchain import Toolchain
from autotune.domain.trial import Trial
from autotune.domain.verdict import Proof
from autotune_db.json_columns import digest, from_text, to_text

AnyRow = Row[*tuple[Any, ...]]
"""Of whatever was selected: its values have the names of their columns."""


def kernel_values(spec: KernelSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "fingerprint": spec.fingerprint,
        "spec": to_text(to_data(spec)),
    }


def kernel_from_row(row: AnyRow) -> KernelSpec:
    return from_data(KernelSpec, from_text(row.spec))


def key_identity(key: Key) -> dict[str, Any]:
    """The columns that tell one key from another."""
    own = identity_of(key)
    options = {name: value for name, _, value in own.options}
    problem = {"dims": dict(own.dims), "dtype": own.dtype, "options": options}
    columns = {"kernel": own.kernel, "fingerprint": own.fingerprint, "chip": own.chip}
    versions = dict(zip(("jax", "jaxlib", "libtpu"), own.versions, strict=True))
    return {**columns, "problem_digest": digest(problem), **versions}


def key_values(key: Key) -> dict[str, Any]:
    return {**key_identity(key), "problem": to_text(to_data(key.problem))}


def key_from_row(row: AnyRow) -> Key:
    return Key(
        kernel=row.kernel,
        fingerprint=row.fingerprint,
        problem=from_data(Problem, from_text(row.problem)),
        chip=Chip(row.chip),
        toolchain=Toolchain(jax=row.jax, jaxlib=row.jaxlib, libtpu=row.libtpu),
    )


def space_values(refusals: Refusals) -> dict[str, Any]:
    return {"refusals": to_text(to_data(refusals))}


def refusals_from_row(row: AnyRow) -> Refusals:
    return from_data(Refusals, from_text(row.refusals))


def trial_values(trial: Trial) -> dict[str, Any]:
    config = to_data(trial.config)
    return {
        "number": trial.number,
        "config": to_text(config),
        "config_digest": digest(config),
        **outcome_values(trial.outcome),
        "seconds": trial.seconds,
        "created_at": trial.created_at,
        "pushed_by": trial.pushed_by,
    }


def outcome_values(outcome: Outcome) -> dict[str, Any]:
    """``time_us`` only for an outcome that can win."""
    return {
        "kind": outcome.kind,
        "outcome": to_text(to_data(outcome)),
        "time_us": _finite(outcome.estimate.time_us) if isinstance(outcome, Estimated) else None,
    }


def _finite(time_us: float) -> float | None:
    """SQLite keeps NaN as NULL, PostgreSQL sorts it behind all others."""
    return time_us if isfinite(time_us) else None


def trial_from_row(row: AnyRow) -> Trial:
    return Trial(
        number=row.number,
        config=from_data(Config, from_text(row.config)),
        outcome=from_data(Outcome, from_text(row.outcome)),
        seconds=row.seconds,
        created_at=row.created_at,
        pushed_by=row.pushed_by,
    )


_EVIDENCE = (
    "estimate",
    "default",
    "baseline",
    "reason",
    "verification",
    "measurement",
    "checks",
    "proof",
    "checked_by",
    "rule",
)


def record_values(record: Record) -> dict[str, Any]:
    data = to_data(record)
    return {
        "config": to_text(data["config"]),
        "evidence": to_text({name: data[name] for name in _EVIDENCE if name in data}),
        "time_us": record.estimate.time_us,
        "is_default": record.is_default,
        "verified": record.verified,
        "trials": record.trials,
        "method": record.method,
        "created_at": record.created_at,
        "pushed_by": record.pushed_by,
    }


def record_from_row(row: AnyRow, key: Key) -> Record:
    evidence = from_text(row.evidence)
    measured = evidence.get("measurement")
    return Record(
        key=key,
        config=from_data(Config, from_text(row.config)),
        estimate=from_data(Estimate, evidence["estimate"]),
        default=from_data(Evidence, evidence["default"]),
        baseline=from_data(Evidence, evidence["baseline"]),
        is_default=row.is_default,
        reason=evidence["reason"],
        verification=evidence["verification"],
        verified=row.verified,
        trials=row.trials,
        method=Method(row.method),
        created_at=row.created_at,
        pushed_by=row.pushed_by,
        measurement=measured and from_data(Measurement, measured),
        checks=checks_from_data(evidence),
        proof=from_data(Proof, evidence.get("proof", {})),
        checked_by=evidence.get("checked_by", ""),
        rule=from_data(ShapeRule, evidence["rule"]) if "rule" in evidence else None,
    )


def checks_from_data(evidence: dict[str, Any]) -> tuple[RecordCheck, ...]:
    return tuple(from_data(RecordCheck, one) for one in evidence.get("checks", ()))


def miss_from_row(row: AnyRow) -> Miss:
    return Miss(
        number=row.id,
        key=key_from_row(row),
        answer=row.answer,
        count=row._mapping["count"],  # a tuple has a ``count`` of its own
        first_at=row.first_at,
        last_at=row.last_at,
    )


def snapshot_from_row(row: AnyRow) -> Snapshot:
    return Snapshot(number=row.id, created_at=row.created_at, note=row.note, made_by=row.made_by)


def token_from_row(row: AnyRow) -> Token:
    return Token(
        number=row.id,
        name=row.name,
        role=row.role,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )


def job_values(request: Request) -> dict[str, Any]:
    """Empty texts mean: whatever the worker has."""
    versions = request.toolchain or Toolchain(jax="", jaxlib="", libtpu="")
    return {
        "kernel": request.kernel,
        "fingerprint": request.fingerprint or "",
        **asdict(versions),
        "request": to_text(to_data(request)),
        "candidate": request.candidate,
    }


def job_from_row(row: AnyRow) -> Job:
    return Job(
        number=row.id,
        request=from_data(Request, from_text(row.request)),
        state=State(row.state),
        created_at=row.created_at,
        created_by=row.created_by,
        attempt=row.attempt,
        worker=row.worker,
        cancel_wanted=row.cancel_wanted,
        started_at=row.started_at,
        heard_at=row.heard_at,
        finished_at=row.finished_at,
        progress=from_data(Progress, from_text(row.progress)),
        message=row.message,
    )
