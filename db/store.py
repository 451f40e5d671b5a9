"""The store: every method is one transaction, committed before it returns."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from autotune.chip import Chip
from autotune.kernelspec import KernelSpec
from autotune.key import Key
from autotune.outcome import Outcome
from autotune.trial import KeySummary, Miss, Record, Snapshot, Trial
from db import query, rows
from db.engine import open_engine
from db.failure import translated
from db.migration import bring_to_head, require_head
from db.tables import KernelRow, KeyRow, RecordRow, SnapshotRow, TrialRow
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
        self._work.write(lambda session, _: query.insert(session, KernelRow, values))

    def kernel(self, name: str, fingerprint: str | None = None) -> KernelSpec | None:
        statement = query.kernels(name, fingerprint).limit(1)
        found = self._work.read(lambda s: list(map(rows.kernel_from_row, s.scalars(statement))))
        return found[0] if found else None

    def kernels(self) -> Sequence[KernelSpec]:
        statement = query.kernels()
        found = self._work.read(lambda s: list(map(rows.kernel_from_row, s.scalars(statement))))
        return sorted(found, key=lambda spec: spec.name)  # collations differ between servers

    def save_trial(self, key: Key, trial: Trial) -> bool:
        values = rows.trial_values(trial)
        same_number = query.trials(key).where(TrialRow.number == trial.number)

        def save(session: Session, again: bool) -> bool:
            key_id = query.key_id(session, key)
            if query.insert(session, TrialRow, {**values, "key_id": key_id}):
                return True
            # The connection may have broken after the commit of the first attempt.
            return again and trial in map(rows.trial_from_row, session.scalars(same_number))

        return self._work.write(save)

    def replace_outcome(self, key: Key, number: int, outcome: Outcome) -> None:
        statement = query.trials(key).where(TrialRow.number == number)

        def write(session: Session, _: bool) -> None:
            for row in session.scalars(statement):
                for name, value in rows.outcome_values(outcome).items():
                    setattr(row, name, value)

        self._work.write(write)

    def history(
        self, kernel: str | None = None, chip: Chip | None = None, limit: int = 50
    ) -> Sequence[KeySummary]:
        keys = query.tried_keys(kernel, chip).limit(limit)
        return self._work.read(
            lambda session: [query.summary(session, *row) for row in session.execute(keys)]
        )

    def trials(self, key: Key) -> Sequence[Trial]:
        statement = query.trials(key)
        return self._work.read(lambda s: list(map(rows.trial_from_row, s.scalars(statement))))

    def trial(self, trial_id: int) -> tuple[Key, Trial] | None:
        if not 0 < trial_id <= _MAX_ID:
            return None
        statement = select(KeyRow, TrialRow).join(TrialRow).where(TrialRow.id == trial_id)

        def find(session: Session) -> tuple[Key, Trial] | None:
            row = session.execute(statement).one_or_none()
            return (rows.key_from_row(row[0]), rows.trial_from_row(row[1])) if row else None

        return self._work.read(find)

    def trial_id(self, key: Key, number: int) -> int | None:
        if not 0 <= number <= _MAX_ID:
            return None
        statement = query.trials(key).where(TrialRow.number == number)
        return self._work.read(lambda s: s.scalar(statement.with_only_columns(TrialRow.id)))

    def save_record(self, record: Record) -> None:
        values = rows.record_values(record)

        def save(session: Session, again: bool) -> None:
            query.one_publisher(session)
            key_id = query.key_id(session, record.key)
            if again and query.newest_record(session, record.key) == record:
                return
            row = RecordRow(**values, key_id=key_id)
            session.add(row)
            session.flush()
            session.add(SnapshotRow(record_id=row.id, created_at=self._clock()))

        self._work.write(save)

    def record(self, key: Key) -> Record | None:
        return self._work.read(lambda session: query.newest_record(session, key))

    def latest_snapshot(self) -> int:
        newest = query.snapshots().with_only_columns(SnapshotRow.id).limit(1)
        return self._work.read(lambda session: session.scalar(newest)) or 0

    def snapshots(self, limit: int = 50) -> Sequence[Snapshot]:
        statement = query.snapshots().limit(limit)
        return self._work.read(lambda s: list(map(rows.snapshot_from_row, s.scalars(statement))))

    def snapshot_records(self, number: int, since: int = 0) -> Sequence[Record] | None:
        if not 0 < number <= _MAX_ID:
            return [] if number == 0 else None

        def find(session: Session) -> list[Record] | None:
            upto, after = (session.get(SnapshotRow, wanted) for wanted in (number, since))
            if upto is None:
                return None
            statement = query.snapshot_records(upto.record_id, after.record_id if after else 0)
            return [
                rows.record_from_row(record, rows.key_from_row(key))
                for key, record in session.execute(statement)
            ]

        return self._work.read(find)

    def save_miss(self, key: Key, count: int = 1) -> None:
        self.save_misses({key: count})

    def save_misses(self, counts: Mapping[Key, int]) -> None:
        now = self._clock()
        in_order = sorted(counts.items(), key=lambda item: str(item[0]))  # else two could deadlock

        def write(session: Session, _: bool) -> None:
            for key, count in in_order:
                query.count_miss(session, key, count, now)

        self._work.write(write)

    def misses(self, limit: int = 50) -> Sequence[Miss]:
        statement = query.missed().limit(limit)
        return self._work.read(
            lambda s: [rows.miss_from_row(miss, key) for key, miss in s.execute(statement)]
        )

    def records(self, kernel: str | None = None, chip: Chip | None = None) -> Sequence[Record]:
        statement = query.newest_records(kernel, chip)
        return self._work.read(
            lambda session: [
                rows.record_from_row(record, rows.key_from_row(key))
                for key, record in session.execute(statement)
            ]
        )
