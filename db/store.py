"""The store: every method is one transaction, committed before it returns."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Engine, ScalarSelect, Select, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from autotune.chip import Chip
from autotune.kernelspec import KernelSpec
from autotune.key import Key
from autotune.trial import Record, Trial
from db import rows
from db.engine import open_engine
from db.failure import translated
from db.migration import bring_to_head, require_head
from db.tables import Base, KernelRow, KeyRow, RecordRow, TrialRow
from db.transaction import Transactions
from db.url import Database, parse_database

_MAX_ID = 2**63 - 1


def _now() -> datetime:
    return datetime.now(UTC)


def open_store(
    url: str | None = None, *, create: bool, clock: Callable[[], datetime] = _now
) -> "SqlStore":
    """The store at ``url`` (a URL or a file path), else in the environment, else the user's own.

    ``create`` makes the file and brings the tables up to date; without it nothing is created, and
    a database that is missing, or of another version, is refused. Raises ``StoreError``.
    """
    database = parse_database(url)
    with translated(database):
        engine = open_engine(database, create=create)
        try:
            (bring_to_head if create else require_head)(engine, database)
        except BaseException:
            engine.dispose()
            raise
    return SqlStore(engine, database, clock)


class SqlStore:
    """Implements ``autotune.ports.Store``. Safe to share between threads.

    "Newest" and "last" mean saved last: clocks of several machines do not decide.
    """

    def __init__(self, engine: Engine, database: Database, clock: Callable[[], datetime]) -> None:
        self._work = Transactions(engine, database)
        self._database = database
        self._clock = clock

    @property
    def url(self) -> str:
        """For Optuna's ``RDBStorage``; holds the password, where there is one."""
        return self._database.full_url

    def __str__(self) -> str:
        return str(self._database)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._work.close()

    def save_kernel(self, spec: KernelSpec) -> None:
        values = {**rows.kernel_values(spec), "created_at": self._clock()}
        self._work.write(lambda session, again: _insert(session, KernelRow, values))

    def kernel(self, name: str, fingerprint: str | None = None) -> KernelSpec | None:
        query = select(KernelRow).where(KernelRow.name == name)
        if fingerprint is not None:
            query = query.where(KernelRow.fingerprint == fingerprint)
        query = query.order_by(KernelRow.id.desc()).limit(1)
        found = self._work.read(lambda s: [rows.kernel_from_row(row) for row in s.scalars(query)])
        return found[0] if found else None

    def kernels(self) -> Sequence[KernelSpec]:
        query = select(KernelRow).order_by(KernelRow.id.desc())
        found = self._work.read(lambda s: [rows.kernel_from_row(row) for row in s.scalars(query)])
        return sorted(found, key=lambda spec: spec.name)  # collations differ between servers

    def save_trial(self, key: Key, trial: Trial) -> bool:
        values = rows.trial_values(trial)

        def save(session: Session, again: bool) -> bool:
            key_id = _key_id(session, key)
            if _insert(session, TrialRow, {**values, "key_id": key_id}):
                return True
            # The connection may have broken after the commit of the first attempt.
            return again and _trial(session, key, trial.number) == trial

        return self._work.write(save)

    def trials(self, key: Key) -> Sequence[Trial]:
        query = select(TrialRow).where(TrialRow.key_id == _id_of(key)).order_by(TrialRow.number)
        return self._work.read(lambda s: [rows.trial_from_row(row) for row in s.scalars(query)])

    def trial(self, trial_id: int) -> tuple[Key, Trial] | None:
        if not 0 < trial_id <= _MAX_ID:
            return None
        query = select(KeyRow, TrialRow).join(TrialRow).where(TrialRow.id == trial_id)

        def find(session: Session) -> tuple[Key, Trial] | None:
            row = session.execute(query).one_or_none()
            return (rows.key_from_row(row[0]), rows.trial_from_row(row[1])) if row else None

        return self._work.read(find)

    def trial_id(self, key: Key, number: int) -> int | None:
        if not 0 <= number <= _MAX_ID:
            return None
        query = select(TrialRow.id).where(TrialRow.key_id == _id_of(key), TrialRow.number == number)
        return self._work.read(lambda session: session.scalar(query))

    def save_record(self, record: Record) -> None:
        values = rows.record_values(record)

        def save(session: Session, again: bool) -> None:
            key_id = _key_id(session, record.key)
            if not again or _record(session, record.key) != record:
                session.add(RecordRow(**values, key_id=key_id))

        self._work.write(save)

    def record(self, key: Key) -> Record | None:
        return self._work.read(lambda session: _record(session, key))

    def records(self, kernel: str | None = None, chip: Chip | None = None) -> Sequence[Record]:
        newest = select(func.max(RecordRow.id)).join(KeyRow).group_by(RecordRow.key_id)
        if kernel is not None:
            newest = newest.where(KeyRow.kernel == kernel)
        if chip is not None:
            newest = newest.where(KeyRow.chip == chip.value)
        query = select(KeyRow, RecordRow).join(RecordRow).where(RecordRow.id.in_(newest))
        query = query.order_by(RecordRow.id.desc())
        return self._work.read(
            lambda session: [
                rows.record_from_row(record, rows.key_from_row(key))
                for key, record in session.execute(query)
            ]
        )


def _insert(session: Session, table: type[Base], values: dict[str, Any]) -> bool:
    """False when a unique constraint says that it is there already."""
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table).values(values).on_conflict_do_nothing()
    returning = statement.returning(table.__table__.c.id)  # a count of rows is not reliable
    return session.scalar(returning) is not None


def _key_id(session: Session, key: Key) -> int:
    """The number of a key, which is written where it is new."""
    found = session.scalar(_find_key(key))
    if found is None:
        _insert(session, KeyRow, rows.key_values(key))
        found = session.scalar(_find_key(key))
    assert found is not None
    return found


def _find_key(key: Key) -> Select[int]:
    identity = rows.key_identity(key).items()
    return select(KeyRow.id).where(*(getattr(KeyRow, name) == value for name, value in identity))


def _id_of(key: Key) -> ScalarSelect[int]:
    return _find_key(key).scalar_subquery()


def _trial(session: Session, key: Key, number: int) -> Trial | None:
    query = select(TrialRow).where(TrialRow.key_id == _id_of(key), TrialRow.number == number)
    row = session.scalar(query)
    return rows.trial_from_row(row) if row else None


def _record(session: Session, key: Key) -> Record | None:
    query = select(RecordRow).where(RecordRow.key_id == _id_of(key))
    row = session.scalar(query.order_by(RecordRow.id.desc()).limit(1))
    return rows.record_from_row(row, key) if row else None
