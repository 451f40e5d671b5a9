"""Domain values to column values and back; equal to what went in.

A field is in the column of its name; what has none is in the JSON beside them.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from datetime import UTC, datetime
from hashlib import blake2b
from math import isfinite
from typing import Any, TypeVar

from sqlalchemy import Row

from autotune.domain.browsing import AuditEntry, Author, Miss, SearchStatus
from autotune.domain.codec import field_decoders, from_data, to_data
from autotune.domain.job import Job, Request
from autotune.domain.key import Chip, KernelSpec, Key, Toolchain
from autotune.domain.outcome import Estimated, Outcome
from autotune.domain.problem import Problem
from autotune.domain.record import Record, Snapshot, Standing, Trial
from autotune.domain.store import CandidateDecision, RecordCandidate
from autotune.domain.token import Token
from autotune_db.tables import IDENTITY, RECORDS, TEXT_PARTS, digest, from_text, to_text

T = TypeVar("T")
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

_ANY = Toolchain(jax="", jaxlib="", libtpu="")

_JSON = ("config", "outcome", "request", "progress")  # columns of values of more than one field
_RECORD_FIELDS = [
    field.name for field in sorted(fields(Record), key=lambda field: field.default is not MISSING)
]
"""In the order in which their JSON is kept: what is pushed again is known by its text."""
_RECORD_COLUMNS = frozenset(RECORDS.c.keys()) & frozenset(_RECORD_FIELDS)

_DIGESTED = (*sorted(_RECORD_COLUMNS - {"created_at"}), "evidence", "claimed", *IDENTITY)

AnyRow = Row[*tuple[Any, ...]]
"""Of whatever was selected: its values have the names of their columns."""


def kernel_values(spec: KernelSpec) -> dict[str, Any]:
    return {"name": spec.name, "fingerprint": spec.fingerprint, "spec": to_text(to_data(spec))}


def kernel_from_row(row: AnyRow) -> KernelSpec:
    return from_data(KernelSpec, from_text(row.spec))


def key_identity(key: Key) -> dict[str, Any]:
    """The columns that tell one key from another."""
    columns = {"kernel": key.kernel, "fingerprint": key.fingerprint, "chip": key.chip.value}
    return {
        **columns,
        "problem_digest": problem_digest(key.problem),
        **toolchain_values(key.toolchain),
    }


def problem_digest(problem: Problem) -> str:
    """In whatever order dimensions and options are."""
    options = dict(problem.options)
    return digest({"dims": dict(problem.dims), "dtype": problem.dtype, "options": options})


def toolchain_values(toolchain: Toolchain) -> dict[str, str]:
    """The columns that tell one toolchain from another. A digest of the compiler options stands
    behind the version of the compiler: they may be longer than an index takes."""
    compiler = toolchain.libtpu
    compiler += f" {digest(toolchain.options)}" if toolchain.options else ""
    return {"jax": toolchain.jax, "jaxlib": toolchain.jaxlib, "libtpu": compiler}


def toolchain_from_columns(jax: str, jaxlib: str, libtpu: str, options: str) -> Toolchain:
    return Toolchain(jax=jax, jaxlib=jaxlib, libtpu=libtpu.partition(" ")[0], options=options)


def key_values(key: Key) -> dict[str, Any]:
    more = {"compiler_options": key.toolchain.options, "problem": to_text(to_data(key.problem))}
    values = {**key_identity(key), **more}
    return {**values, "text": "\n".join(values[name] for name in TEXT_PARTS).lower()}


def key_from_row(row: AnyRow) -> Key:
    return Key(
        kernel=row.kernel,
        fingerprint=row.fingerprint,
        problem=from_data(Problem, from_text(row.problem)),
        chip=Chip(row.chip),
        toolchain=toolchain_from_columns(row.jax, row.jaxlib, row.libtpu, row.compiler_options),
    )


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
    return _value(Trial, row)


def record_values(record: Record) -> dict[str, Any]:
    data = to_data(record)
    names = [name for name in _RECORD_FIELDS if name in data and name not in _RECORD_COLUMNS]
    values = {
        **{name: getattr(record, name) for name in _RECORD_COLUMNS},
        "config": to_text(data["config"]),
        "evidence": to_text({name: data[name] for name in names if name != "key"}),
        "time_us": record.estimate.time_us,
        "claimed": record.standing is Standing.CLAIMED,
    }
    return {**values, "digest": _record_digest(values | key_identity(record.key))}


def _record_digest(values: Any) -> str:
    """Of all that the row of a record says, and of its key."""
    given = float(values["time_us"]), values["created_at"].astimezone(UTC)
    text = "\0".join(map(str, (*given, *(values[name] for name in _DIGESTED))))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def record_from_row(row: AnyRow) -> Record:
    """Of a row with its key. Raises ``ValueError`` for one that was changed: a snapshot has the
    same records for ever."""
    record = _value(Record, row, from_text(row.evidence), key=key_from_row(row))
    is_same = key_identity(record.key).items() <= row._mapping.items()
    if row.digest and not (is_same and row.digest == _record_digest(row._mapping)):
        raise ValueError("it is not what was published: somebody changed it, or its key")
    return record


def miss_from_row(row: AnyRow) -> Miss:
    return _value(Miss, row, number=row.id, key=key_from_row(row))


def snapshot_from_row(row: AnyRow) -> Snapshot:
    """One whose time is damaged is of the beginning: what is in it is known."""
    made_at = row.created_at if isinstance(row.created_at, datetime) else _BEGINNING
    return _value(Snapshot, row, number=row.id, created_at=made_at)


def token_from_row(row: AnyRow) -> Token:
    return _value(Token, row, number=row.id)


def job_values(request: Request) -> dict[str, Any]:
    """Empty texts mean: whatever the worker has. It compiles with any options."""
    return {
        "kernel": request.kernel,
        "fingerprint": request.fingerprint or "",
        **toolchain_values(replace(request.toolchain or _ANY, options="")),
        "request": to_text(to_data(request)),
        "candidate": request.candidate,
    }


def asked_identity(request: Request) -> dict[str, Any]:
    """The columns of keys that a request says something of."""
    key = Key(
        kernel=request.kernel,
        fingerprint=request.fingerprint or "",
        problem=request.problem,
        chip=request.chip,
        toolchain=request.toolchain or _ANY,
    )
    return {name: value for name, value in key_identity(key).items() if value}


def job_from_row(row: AnyRow) -> Job:
    return _value(Job, row, number=row.id)


def status_from_row(row: AnyRow) -> SearchStatus:
    return _value(SearchStatus, row)


def audit_entry_from_row(row: AnyRow) -> AuditEntry:
    return _value(AuditEntry, row, number=row.id, author=_value(Author, row))


def candidate_from_row(row: AnyRow) -> RecordCandidate:
    record = from_data(Record, from_text(row.record))
    decision = _value(CandidateDecision, row)
    return _value(RecordCandidate, row, number=row.id, record=record, decision=decision)


def _value(
    form: Callable[..., T], row: AnyRow, rest: Mapping[str, Any] | None = None, **values: Any
) -> T:
    """``rest``: the data of what has no column; ``values``: fields as they are."""
    columns = row._mapping
    for name, decode in field_decoders(form).items():
        if name in values:
            continue
        if name in columns:
            data = from_text(columns[name]) if name in _JSON else columns[name]
        elif rest is not None and name in rest:
            data = rest[name]
        else:
            continue  # kept before there was such a field
        values[name] = data if decode is None or isinstance(data, datetime) else decode(data)
    return form(**values)
