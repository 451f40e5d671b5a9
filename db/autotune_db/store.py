"""The store: every method is one transaction, committed before it returns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from autotune.domain.chip import Chip
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.outcome import Outcome
from autotune.domain.refusals import Refusals
from autotune.domain.trial import (
    Change,
    KeyResult,
    KeySummary,
    Miss,
    Pushed,
    Record,
    Snapshot,
    Trial,
)
from autotune_db import query, rows, snapshots
from autotune_db.browse import SqlBrowse
from autotune_db.engine import open_engine
from autotune_db.failure import translated
from autotune_db.jobs import SqlJobs
from autotune_db.migration import bring_to_head, require_head
from autotune_db.query import MAX_ID
from autotune_db.searches import SqlSearches
from autotune_db.tables import KernelRow, KeyRow, MissRow, RecordRow, SnapshotRow, TrialRow
from autotune_db.tokens import SqlTokens
from autotune_db.transaction import Transactions
from autotune_db.url import Database, parse_database

T = TypeVar("T")


def _now() -> datetime:
    return datetime.now(UTC)


def open_store(
    url: str | None = None,
    *,
    create: bool,
    clock: Callable[[], datetime] = _now,
    wait_s: float | None = None,
) -> "SqlStore":
    """The store at ``url`` (a URL or a file path), else in the environment, else the user's own.

    ``create`` makes the file and brings the tables up to date; without it nothing is created, and
    a database that is missing, or of another version, is refused. ``wait_s``: how long work may
    wait for a lock. Raises ``StoreError``.
    """
    database = parse_database(url)
    with translated(database):
        engine = open_engine(database, create=create, wait_s=wait_s)
        try:
            (bring_to_head if create else require_head)(engine, database)
        except BaseException:
            engine.dispose()
            raise
    return SqlStore(engine, database, clock)


class SqlStore:
    """Implements ``autotune.ports.Store``. Safe to share between threads.

    "Newest" and "last" mean saved last: clocks of several machines do not decide.
    ``jobs`` and ``tokens`` are kept in the same database; ``browse`` is for people.
    """

    def __init__(self, engine: Engine, database: Database, clock: Callable[[], datetime]) -> None:
        self._work = Transactions(engine, database)
        self._database = database
        self._clock = clock
        self.jobs = SqlJobs(self._work, clock)
        self.tokens = SqlTokens(self._work, clock)
        self.browse = SqlBrowse(self._work)
        self.searches = SqlSearches(self._work, clock)

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

    def save_refusals(self, key: Key, refusals: Refusals) -> None:
        self._work.write(lambda s, _: query.save_refusals(s, key, refusals, again=True))

    def refusals(self, key: Key) -> Refusals | None:
        return self._work.read(lambda s: query.refusals(s, query.find_key(s, key)))

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
            lambda session: [query.summary(session, key) for key, _ in session.execute(keys)]
        )

    def trials(self, key: Key) -> Sequence[Trial]:
        statement = query.trials(key)
        return self._work.read(lambda s: list(map(rows.trial_from_row, s.scalars(statement))))

    def trial(self, trial_id: int) -> tuple[Key, Trial] | None:
        if not 0 < trial_id <= MAX_ID:
            return None
        statement = select(KeyRow, TrialRow).join(TrialRow).where(TrialRow.id == trial_id)

        def find(session: Session) -> tuple[Key, Trial] | None:
            row = session.execute(statement).one_or_none()
            return (rows.key_from_row(row[0]), rows.trial_from_row(row[1])) if row else None

        return self._work.read(find)

    def trial_id(self, key: Key, number: int) -> int | None:
        if not 0 <= number <= MAX_ID:
            return None
        statement = query.trials(key).where(TrialRow.number == number)
        return self._work.read(lambda s: s.scalar(statement.with_only_columns(TrialRow.id)))

    def save_record(self, record: Record) -> None:
        def write(session: Session, again: bool) -> None:
            query.one_publisher(session)
            if again and _is_there(session, record):  # the first attempt was committed after all
                return
            added = _add_record(session, record)
            snapshots.publish(session, added, self._clock(), by="", note=f"record {added}")

        self._work.write(write)

    def push(self, kernels: Iterable[KernelSpec], results: Sequence[KeyResult], by: str) -> Pushed:
        specs = [{**rows.kernel_values(spec), "created_at": self._clock()} for spec in kernels]
        signed = [_signed(result, by) for result in results]

        def write(session: Session, _: bool) -> Pushed:
            query.one_publisher(session)
            for values in specs:
                query.insert(session, KernelRow, values)
            trials = sum(_add_trials(session, result) for result in signed)
            for one in signed:
                if one.refusals is not None:
                    query.save_refusals(session, one.record.key, one.refusals, again=False)
            before = snapshots.latest(session)
            wins = [one.record for one in signed if not _loses(session, before, one.record)]
            new = [_add_record(session, one) for one in wins if not _is_there(session, one)]
            if new:
                note = f"{len(new)} pushed, up to record {new[-1]}"
                before = snapshots.publish(session, new[-1], self._clock(), by=by, note=note)
            number = before.id if before else 0
            lost = len(signed) - len(wins)
            return Pushed(records=len(new), trials=trials, lost=lost, snapshot=number)

        return self._work.write(write)

    def record(self, key: Key) -> Record | None:
        def find(session: Session) -> Record | None:
            row, key_id = snapshots.latest(session), query.find_key(session, key)
            if row is None or key_id is None:
                return None
            found = session.get(RecordRow, snapshots.record_id(session, row, key_id) or 0)
            return rows.record_from_row(found, key) if found else None

        return self._work.read(find)

    def published(
        self, kernel: str | None = None, chip: Chip | None = None, limit: int = 50
    ) -> Sequence[tuple[int, Record]]:
        statement = query.numbered_records(kernel, chip).limit(limit)
        return self._work.read(
            lambda s: [
                (record.id, rows.record_from_row(record, rows.key_from_row(key)))
                for key, record in s.execute(statement)
            ]
        )

    def latest_snapshot(self) -> int:
        newest = select(func.max(SnapshotRow.id))
        return self._work.read(lambda session: session.scalar(newest)) or 0

    def snapshots(self, limit: int = 50) -> Sequence[Snapshot]:
        statement = snapshots.newest_first().limit(limit)
        return self._work.read(lambda s: list(map(rows.snapshot_from_row, s.scalars(statement))))

    def snapshot_records(self, number: int) -> Sequence[Record] | None:
        return [] if number == 0 else self._of_snapshot(number, snapshots.records)

    def snapshot_change(self, number: int, since: int) -> Change | None:
        def find(session: Session, row: SnapshotRow) -> Change:
            old = session.get(SnapshotRow, since) if 0 < since <= MAX_ID else None
            if old is None:
                return Change(records=snapshots.records(session, row))
            return snapshots.change(session, old, row)

        return Change() if number == 0 else self._of_snapshot(number, find)

    def _of_snapshot(self, number: int, read: Callable[[Session, SnapshotRow], T]) -> T | None:
        def find(session: Session) -> T | None:
            row = session.get(SnapshotRow, number)
            return None if row is None else read(session, row)

        return self._work.read(find) if 0 < number <= MAX_ID else None

    def roll_back(self, number: int, by: str = "") -> int | None:
        def write(session: Session, now: datetime) -> int | None:
            target = session.get(SnapshotRow, number)
            return snapshots.roll_back(session, target, now, by=by).id if target else None

        return self._make_snapshot(write) if 0 < number <= MAX_ID else None

    def pin(self, record: int, by: str = "") -> int | None:
        def write(session: Session, now: datetime) -> int | None:
            row = session.get(RecordRow, record)
            return snapshots.pin(session, row, now, by=by).id if row else None

        return self._make_snapshot(write) if 0 < record <= MAX_ID else None

    def unpin(self, record: int, by: str = "") -> int | None:
        def write(session: Session, now: datetime) -> int | None:
            row = session.get(RecordRow, record)
            if row is None:
                return None
            note = f"unpinned record {record}"
            return snapshots.unpin(session, row.key_id, now, by=by, note=note).id

        return self._make_snapshot(write) if 0 < record <= MAX_ID else None

    def _make_snapshot(self, make: Callable[[Session, datetime], T]) -> T:
        def write(session: Session, _: bool) -> T:
            query.one_publisher(session)
            return make(session, self._clock())

        return self._work.write(write)

    def prune(self, before: datetime) -> int:
        return self._make_snapshot(lambda session, _: snapshots.prune(session, before))

    def save_misses(self, counts: Mapping[tuple[Key, str], int]) -> None:
        now = self._clock()
        in_order = sorted(counts.items(), key=lambda item: str(item[0]))  # else two could deadlock

        def write(session: Session, _: bool) -> None:
            for (key, answer), count in in_order:
                query.count_miss(session, key, answer, count, now)

        self._work.write(write)

    def misses(self, limit: int = 50) -> Sequence[Miss]:
        statement = query.missed().limit(limit)
        return self._work.read(
            lambda s: [rows.miss_from_row(miss, key) for key, miss in s.execute(statement)]
        )

    def miss(self, number: int) -> Miss | None:
        statement = select(KeyRow, MissRow).join(MissRow).where(MissRow.id == number)

        def find(session: Session) -> Miss | None:
            row = session.execute(statement).one_or_none()
            return rows.miss_from_row(row[1], row[0]) if row else None

        return self._work.read(find) if 0 < number <= MAX_ID else None

    def records(self, kernel: str | None = None, chip: Chip | None = None) -> Sequence[Record]:
        def find(session: Session) -> list[Record]:
            row = snapshots.latest(session)
            return snapshots.records(session, row, *query.only(kernel, chip)) if row else []

        return self._work.read(find)


def _signed(result: KeyResult, by: str) -> KeyResult:
    """Who pushed it is for us to say, not for the push."""
    trials = tuple(replace(trial, pushed_by=by) for trial in result.trials)
    return replace(result, record=replace(result.record, pushed_by=by), trials=trials)


def _loses(session: Session, row: SnapshotRow | None, record: Record) -> bool:
    """Whether the published record of the key is newer, faster by the same kind of evidence, or
    measured where this one is only estimated.

    What is there already does not lose: it may be pushed again.
    """
    key_id = query.find_key(session, record.key)
    number = snapshots.record_id(session, row, key_id) if row and key_id else None
    found = session.get(RecordRow, number) if number else None
    if found is None:
        return False
    its = rows.record_from_row(found, record.key)
    faster = _same_kind(record, its) and its.time_us < record.time_us
    firmer = its.method == "measured" and record.method != "measured"
    return found.created_at > record.created_at or faster or firmer


def _same_kind(one: Record, other: Record) -> bool:
    """Whether their times may be compared: by the same model, or measured in the same way."""
    if one.method != other.method:
        return False
    if one.measurement is not None and other.measurement is not None and one.method == "measured":
        return one.measurement.method == other.measurement.method
    return one.estimate.model == other.estimate.model


def _is_there(session: Session, record: Record) -> bool:
    """Whoever brought it."""
    values = rows.record_values(record)
    same = select(RecordRow.id).where(RecordRow.key_id == query.find_key(session, record.key))
    for name in ("config", "evidence", "created_at"):
        same = same.where(getattr(RecordRow, name) == values[name])
    return session.scalar(same.limit(1)) is not None


def _add_record(session: Session, record: Record) -> int:
    """Its id."""
    row = RecordRow(**rows.record_values(record), key_id=query.key_id(session, record.key))
    session.add(row)
    session.flush()
    return row.id


def _add_trials(session: Session, result: KeyResult) -> int:
    """How many are new: a config that was tried keeps its own evidence; a number that is taken
    becomes the next."""
    if not result.trials:
        return 0
    key_id = query.key_id(session, result.record.key)
    known = select(TrialRow.number, TrialRow.config_digest).where(TrialRow.key_id == key_id)
    found = list(session.execute(known))
    numbers, configs = {number for number, _ in found}, {config for _, config in found}
    before = len(configs)
    for trial in result.trials:
        values = rows.trial_values(trial)
        if values["config_digest"] not in configs:
            number = trial.number if trial.number not in numbers else max(numbers) + 1
            session.add(TrialRow(**{**values, "number": number, "key_id": key_id}))
            numbers.add(number)
            configs.add(values["config_digest"])
    return len(configs) - before
