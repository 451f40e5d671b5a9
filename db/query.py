"""The statements behind the store, each inside a session that its caller commits."""

from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import ScalarSelect, Select, desc, func, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from autotune.chip import Chip
from autotune.key import Key
from autotune.trial import KeySummary, Record
from db import rows
from db.tables import Base, KernelRow, KeyRow, MissRow, RecordRow, SnapshotRow, TrialRow

Query = TypeVar("Query", bound=Select[Any])

_PUBLISHING = 0x7075626C697368  # "publish": PostgreSQL's advisory lock


def insert(session: Session, table: type[Base], values: dict[str, Any]) -> bool:
    """False when a unique constraint says that it is there already."""
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table).values(values).on_conflict_do_nothing()
    returning = statement.returning(table.__table__.c.id)  # a count of rows is not reliable
    return session.scalar(returning) is not None


def key_id(session: Session, key: Key) -> int:
    """The number of a key, which is written where it is new."""
    found = session.scalar(_find_key(key))
    if found is None:
        insert(session, KeyRow, rows.key_values(key))
        found = session.scalar(_find_key(key))
    assert found is not None
    return found


def kernels(name: str | None = None, fingerprint: str | None = None) -> Select[KernelRow]:
    """The one saved last first."""
    query = select(KernelRow).order_by(KernelRow.id.desc())
    if name is not None:
        query = query.where(KernelRow.name == name)
    return query if fingerprint is None else query.where(KernelRow.fingerprint == fingerprint)


def trials(key: Key) -> Select[TrialRow]:
    """All of a key, by number."""
    return select(TrialRow).where(TrialRow.key_id == _id_of(key)).order_by(TrialRow.number)


def newest_record(session: Session, key: Key) -> Record | None:
    query = select(RecordRow).where(RecordRow.key_id == _id_of(key))
    row = session.scalar(query.order_by(RecordRow.id.desc()).limit(1))
    return rows.record_from_row(row, key) if row else None


def newest_records(kernel: str | None, chip: Chip | None) -> Select[KeyRow, RecordRow]:
    """Of each key, newest first."""
    newest = select(func.max(RecordRow.id)).join(KeyRow).group_by(RecordRow.key_id)
    newest = _only(newest, kernel, chip)
    query = select(KeyRow, RecordRow).join(RecordRow).where(RecordRow.id.in_(newest))
    return query.order_by(RecordRow.id.desc())


def one_publisher(session: Session) -> None:
    """Until the transaction ends nobody else publishes, so that records become visible in the
    order of their ids: a snapshot would change else. SQLite has one writer in any case."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"SELECT pg_advisory_xact_lock({_PUBLISHING})"))


def snapshots() -> Select[SnapshotRow]:
    """The newest first."""
    return select(SnapshotRow).order_by(SnapshotRow.id.desc())


def snapshot_records(record_id: int, since_id: int) -> Select[KeyRow, RecordRow]:
    """Of each key the newest among the records after ``since_id`` up to ``record_id``."""
    newest = select(func.max(RecordRow.id)).group_by(RecordRow.key_id)
    newest = newest.where(RecordRow.id <= record_id, RecordRow.id > since_id)
    query = select(KeyRow, RecordRow).join(RecordRow).where(RecordRow.id.in_(newest))
    return query.order_by(RecordRow.id.desc())


def count_miss(session: Session, key: Key, count: int, now: datetime) -> None:
    """One statement, so that hosts that ask at once are all counted."""
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    values = {"key_id": key_id(session, key), "count": count, "first_at": now, "last_at": now}
    again = {"count": MissRow.count + count, "last_at": now}
    session.execute(
        dialect.insert(MissRow)
        .values(values)
        .on_conflict_do_update(index_elements=["key_id"], set_=again)
    )


def missed() -> Select[KeyRow, MissRow]:
    """Keys without a record, the most wanted first."""
    published = select(RecordRow.id).where(RecordRow.key_id == MissRow.key_id).exists()
    query = select(KeyRow, MissRow).join(MissRow, MissRow.key_id == KeyRow.id)
    return query.where(~published).order_by(MissRow.count.desc(), MissRow.id)


def tried_keys(kernel: str | None, chip: Chip | None) -> Select[KeyRow, int | None]:
    """Keys with the number of their newest trial, newest first: one index step for each key."""
    newest = select(func.max(TrialRow.id)).where(TrialRow.key_id == KeyRow.id).scalar_subquery()
    query = select(KeyRow, newest.label("newest")).where(newest.is_not(None))
    return _only(query, kernel, chip).order_by(desc("newest"))


def summary(session: Session, row: KeyRow, newest: int | None) -> KeySummary:
    """Counts and times of one key: each an index scan over its own trials."""
    mine = TrialRow.key_id == row.id
    kinds = select(TrialRow.kind, func.count()).where(mine).group_by(TrialRow.kind)
    counted = sorted(((kind, n) for kind, n in session.execute(kinds)), key=lambda c: (-c[1], c[0]))
    record = select(RecordRow.id).where(RecordRow.key_id == row.id).limit(1)
    last = session.get_one(TrialRow, newest)
    return KeySummary(
        key=rows.key_from_row(row),
        outcomes=tuple(counted),
        best_us=session.scalar(select(func.min(TrialRow.time_us)).where(mine)),
        default_us=session.scalar(select(TrialRow.time_us).where(mine, TrialRow.number == 0)),
        has_record=session.scalar(record) is not None,
        last_at=last.created_at,
    )


def _only(query: Query, kernel: str | None, chip: Chip | None) -> Query:
    if kernel is not None:
        query = query.where(KeyRow.kernel == kernel)
    return query if chip is None else query.where(KeyRow.chip == chip.value)


def _find_key(key: Key) -> Select[int]:
    identity = rows.key_identity(key).items()
    return select(KeyRow.id).where(*(getattr(KeyRow, name) == value for name, value in identity))


def _id_of(key: Key) -> ScalarSelect[int]:
    return _find_key(key).scalar_subquery()
