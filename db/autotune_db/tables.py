"""The tables. Their names begin with ``autotune_`` because Optuna has ``trials`` of its own."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

PREFIX = "autotune_"


class UtcDateTime(TypeDecorator[datetime]):
    """Aware in and out, always UTC: SQLite keeps no zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _: Dialect) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, _: Dialect) -> datetime | None:
        if value is None or value.tzinfo is not None:
            return value.astimezone(UTC) if value else None
        return value.replace(tzinfo=UTC)


_ID = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER numbers itself there


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012
        str: Text,
        float: Double,
        int: BigInteger,
        bool: Boolean,
        datetime: UtcDateTime,
    }


def _numbered(*extra: Any) -> tuple[Any, ...]:
    """Table arguments; an id is never given twice, not even after a row was deleted."""
    return (*extra, {"sqlite_autoincrement": True})


class KernelRow(Base):
    __tablename__ = PREFIX + "kernels"
    __table_args__ = _numbered(UniqueConstraint("name", "fingerprint"))

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    name: Mapped[str]
    fingerprint: Mapped[str]
    spec: Mapped[str]
    created_at: Mapped[datetime]


class KeyRow(Base):
    """``problem`` keeps the order of the dimensions, ``problem_digest`` does not depend on it.

    ``newest_trial``, ``best_us`` and ``default_us`` sum up its trials, so that lists need not look
    at these: whoever writes trials calls ``query.sum_up``.
    """

    __tablename__ = PREFIX + "keys"
    # This order also serves "another toolchain" and "another shape" of the same kernel and chip.
    __table_args__ = _numbered(
        UniqueConstraint(
            "kernel",
            "fingerprint",
            "chip",
            "problem_digest",
            "jax",
            "jaxlib",
            "libtpu",
            name="uq_autotune_keys_all",
        ),
    )

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    kernel: Mapped[str]
    fingerprint: Mapped[str]
    problem: Mapped[str]
    problem_digest: Mapped[str] = mapped_column(String(32))
    chip: Mapped[str]
    jax: Mapped[str]
    jaxlib: Mapped[str]
    libtpu: Mapped[str]
    newest_trial: Mapped[int | None] = mapped_column(_ID)
    best_us: Mapped[float | None]
    default_us: Mapped[float | None]


class TrialRow(Base):
    """``time_us`` is copied out of the estimate of a trial that can win, for sorting."""

    __tablename__ = PREFIX + "trials"
    __table_args__ = _numbered(
        UniqueConstraint("key_id", "number"),
        UniqueConstraint("key_id", "config_digest"),
        Index(None, "key_id", "id"),
        Index(None, "key_id", "time_us"),
        Index(None, "key_id", "kind", "number"),
        Index(None, "kind"),
    )

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    key_id: Mapped[int] = mapped_column(_ID, ForeignKey(KeyRow.id))
    number: Mapped[int]
    config: Mapped[str]
    config_digest: Mapped[str] = mapped_column(String(32))
    kind: Mapped[str]
    outcome: Mapped[str]
    time_us: Mapped[float | None]
    seconds: Mapped[float]
    created_at: Mapped[datetime]
    pushed_by: Mapped[str] = mapped_column(server_default="")


class RecordRow(Base):
    """Append-only. ``evidence`` holds the estimate, default, baseline and the texts as JSON."""

    __tablename__ = PREFIX + "records"
    __table_args__ = _numbered(Index(None, "key_id", "id"), Index(None, "pushed_by", "key_id"))

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    key_id: Mapped[int] = mapped_column(_ID, ForeignKey(KeyRow.id))
    config: Mapped[str]
    evidence: Mapped[str]
    time_us: Mapped[float]
    is_default: Mapped[bool]
    verified: Mapped[bool]
    trials: Mapped[int]
    method: Mapped[str]
    created_at: Mapped[datetime]
    pushed_by: Mapped[str] = mapped_column(server_default="")


class PushRow(Base):
    """A push that was taken in whole: ``digest`` is the SHA-256 of what it brought."""

    __tablename__ = PREFIX + "pushes"
    __table_args__ = _numbered(UniqueConstraint("digest"))

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    digest: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime]


class AuditRow(Base):
    """Append-only: what was written, and by whom. ``token``: None for this machine's own work."""

    __tablename__ = PREFIX + "audit"
    __table_args__ = _numbered()

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    created_at: Mapped[datetime]
    action: Mapped[str]
    change: Mapped[str]
    name: Mapped[str]
    token: Mapped[int | None] = mapped_column(_ID)
    address: Mapped[str]


class CandidateRow(Base):
    """A pushed record that is published only once it was checked. ``digest``: of the record, but
    not of who brought it."""

    __tablename__ = PREFIX + "candidates"
    __table_args__ = _numbered(UniqueConstraint("digest"), Index(None, "state", "id"))

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    digest: Mapped[str] = mapped_column(String(32))
    record: Mapped[str]
    state: Mapped[str]
    finding: Mapped[str]
    created_at: Mapped[datetime]
    decided_at: Mapped[datetime | None]


class SearchRow(Base):
    """What the last search of a key said of itself."""

    __tablename__ = PREFIX + "searches"
    __table_args__ = _numbered(UniqueConstraint("key_id"))

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    key_id: Mapped[int] = mapped_column(_ID, ForeignKey(KeyRow.id))
    space: Mapped[str]
    progress: Mapped[str]
    over: Mapped[bool]
    heard_at: Mapped[datetime]


class SpaceRow(Base):
    """``refusals``: where the rules leave nothing of the space of a key, as JSON."""

    __tablename__ = PREFIX + "spaces"
    __table_args__ = _numbered(UniqueConstraint("key_id"))

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    key_id: Mapped[int] = mapped_column(_ID, ForeignKey(KeyRow.id))
    refusals: Mapped[str]


class CheckRow(Base):
    """What became of the record of a key under the toolchain and chip of another, the target."""

    __tablename__ = PREFIX + "checks"
    __table_args__ = _numbered(UniqueConstraint("key_id", "target_id"), Index(None, "checked_at"))

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    key_id: Mapped[int] = mapped_column(_ID, ForeignKey(KeyRow.id))
    target_id: Mapped[int] = mapped_column(_ID, ForeignKey(KeyRow.id))
    verdict: Mapped[str]
    content: Mapped[str]
    checked_at: Mapped[datetime]


class KnownConfigRow(Base):
    """A config that a table of others has. ``digest``: of all but its time and where it was found,
    so that the same table again adds nothing."""

    __tablename__ = PREFIX + "known_configs"
    __table_args__ = _numbered(UniqueConstraint("digest"), Index(None, "kernel"))

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    digest: Mapped[str] = mapped_column(String(32))
    kernel: Mapped[str]
    content: Mapped[str]
    created_at: Mapped[datetime]


class WorkloadRow(Base):
    """What was tuned together, as it was tuned last. ``content``: its problems, as JSON."""

    __tablename__ = PREFIX + "workloads"
    __table_args__ = _numbered(UniqueConstraint("name"))

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    name: Mapped[str]
    content: Mapped[str]
    tuned_at: Mapped[datetime]


class MissRow(Base):
    """One row for each key and each way in which the answer to it was not exact."""

    __tablename__ = PREFIX + "misses"
    __table_args__ = _numbered(UniqueConstraint("key_id", "answer"), Index(None, "count"))

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    key_id: Mapped[int] = mapped_column(_ID, ForeignKey(KeyRow.id))
    answer: Mapped[str] = mapped_column(server_default="default")
    count: Mapped[int] = mapped_column(_ID)
    first_at: Mapped[datetime]
    last_at: Mapped[datetime]


class SnapshotRow(Base):
    """A set of records: those of ``base_id``, over them the newest record of each key with an id
    above ``floor`` up to ``record_id``, over them the pins in force. Never changed, and records
    never are: so the set stays what it is, at the cost of one row for each publication.

    A roll-back is a snapshot whose base is the older one and whose floor is the newest record.
    """

    __tablename__ = PREFIX + "snapshots"
    __table_args__ = _numbered()

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    record_id: Mapped[int] = mapped_column(_ID, ForeignKey(RecordRow.id))
    base_id: Mapped[int | None] = mapped_column(_ID)
    floor: Mapped[int] = mapped_column(_ID, server_default="0")
    note: Mapped[str] = mapped_column(server_default="")
    made_by: Mapped[str] = mapped_column(server_default="")
    created_at: Mapped[datetime]


class PinRow(Base):
    """A key has this record in the snapshots from ``from_id`` on, up to but not ``until_id``."""

    __tablename__ = PREFIX + "pins"
    __table_args__ = _numbered(Index(None, "key_id"))

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    key_id: Mapped[int] = mapped_column(_ID, ForeignKey(KeyRow.id))
    record_id: Mapped[int] = mapped_column(_ID, ForeignKey(RecordRow.id))
    from_id: Mapped[int] = mapped_column(_ID)
    until_id: Mapped[int | None] = mapped_column(_ID)


class JobRow(Base):
    """``open_digest`` is that of the request while the job is open: only one such job is open at a
    time. Empty texts in ``fingerprint`` and versions: any. ``candidate``: which one to check, where
    nothing is to be searched."""

    __tablename__ = PREFIX + "jobs"
    __table_args__ = _numbered(UniqueConstraint("open_digest"), Index(None, "state", "id"))

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    open_digest: Mapped[str | None] = mapped_column(String(32))
    kernel: Mapped[str]
    fingerprint: Mapped[str]
    jax: Mapped[str]
    jaxlib: Mapped[str]
    libtpu: Mapped[str]
    request: Mapped[str]
    candidate: Mapped[int | None] = mapped_column(_ID)
    state: Mapped[str]
    created_at: Mapped[datetime]
    created_by: Mapped[str]
    attempt: Mapped[int]
    worker: Mapped[str]
    cancel_wanted: Mapped[bool]
    started_at: Mapped[datetime | None]
    heard_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    progress: Mapped[str]
    message: Mapped[str]


class TokenRow(Base):
    """``digest``: SHA-256 of the secret, which is as long and as random as the digest: so no
    slower hash is needed."""

    __tablename__ = PREFIX + "tokens"
    __table_args__ = _numbered(UniqueConstraint("digest"))

    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    name: Mapped[str]
    role: Mapped[str]
    digest: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
