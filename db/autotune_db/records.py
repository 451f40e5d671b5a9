"""What is published: records, and the snapshots that they are in."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.domain.chip import Chip
from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.domain.snapshot import Change, Snapshot
from autotune_db import audit, query, rows, snapshots
from autotune_db.adapter import Adapter
from autotune_db.known_checks import add_records, renew, with_known_checks
from autotune_db.query import MAX_ID
from autotune_db.tables import KeyRow, RecordRow, SnapshotRow

T = TypeVar("T")


class SqlRecords(Adapter):
    """Records of the newest snapshot, and publishing one more."""

    def save_record(self, record: Record) -> None:
        def write(session: Session, again: bool) -> None:
            query.one_publisher(session)
            (found,) = with_known_checks(session, [record])
            if again and exists(session, found):  # the first attempt was committed after all
                return
            (added,) = add_records(session, {query.key_id(session, record.key): found}).values()
            now = self._clock()
            snapshots.publish(session, added, now, by="", note=f"record {added}")
            audit.note(session, now, "publish", f"record {added}: {record.key}")

        self._work.write(write)

    def record(self, key: Key) -> Record | None:
        def find(session: Session) -> Record | None:
            row, key_id = snapshots.latest(session), query.find_key(session, key)
            if row is None or key_id is None:
                return None
            found = session.get(RecordRow, snapshots.record_id(session, row, key_id) or 0)
            return rows.record_from_row(found, key) if found else None

        return self._work.read(find)

    def records(self, kernel: str | None = None, chip: Chip | None = None) -> Sequence[Record]:
        def find(session: Session) -> list[Record]:
            row = snapshots.latest(session)
            return snapshots.records(session, row, *query.only(kernel, chip)) if row else []

        return self._work.read(find)

    def published(
        self,
        kernel: str | None = None,
        chip: Chip | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> Sequence[tuple[int, Record]]:
        statement = query.page(query.numbered_records(kernel, chip), RecordRow.id, before, limit)
        return self._work.read(
            lambda s: [
                (record.id, rows.record_from_row(record, rows.key_from_row(key)))
                for key, record in s.execute(statement)
            ]
        )


class SqlSnapshots(Adapter):
    """With ``SqlKernels`` a ``SnapshotStore``, with ``SqlRecords`` a ``ReleaseStore``."""

    def snapshots(self, limit: int = 50, before: int | None = None) -> Sequence[Snapshot]:
        statement = query.page(select(SnapshotRow), SnapshotRow.id, before, limit)
        return self._work.read(lambda s: list(map(rows.snapshot_from_row, s.scalars(statement))))

    def snapshot_change(self, number: int, since: int) -> Change | None:
        def find(session: Session, row: SnapshotRow) -> Change:
            old = session.get(SnapshotRow, since) if 0 < since <= MAX_ID else None
            if old is None:
                return Change(records=snapshots.records(session, row))
            return snapshots.change(session, old, row)

        return Change() if number == 0 else self._of_snapshot(number, find)

    def roll_back(self, number: int, by: str = "") -> int | None:
        def write(session: Session, now: datetime) -> int | None:
            target = session.get(SnapshotRow, number)
            if target is None:
                return None
            made = snapshots.roll_back(session, target, now, by=by)
            return renew(session, made, list(snapshots.members(session, made)), now, by=by).id

        done = f"rolled back to snapshot {number}"
        return self._make_snapshot(done, write) if 0 < number <= MAX_ID else None

    def pin(self, record: int, by: str = "") -> int | None:
        def write(session: Session, now: datetime) -> int | None:
            row = session.get(RecordRow, record)
            if row is None:
                return None
            made = snapshots.pin(session, row, now, by=by)
            return renew(session, made, [row.key_id], now, by=by).id

        done = f"pinned record {record}"
        return self._make_snapshot(done, write, record) if 0 < record <= MAX_ID else None

    def unpin(self, record: int, by: str = "") -> int | None:
        done = f"unpinned record {record}"

        def write(session: Session, now: datetime) -> int | None:
            row = session.get(RecordRow, record)
            if row is None:
                return None
            return snapshots.unpin(session, row.key_id, now, by=by, note=done).id

        return self._make_snapshot(done, write, record) if 0 < record <= MAX_ID else None

    def prune(self, before: datetime) -> int:
        def write(session: Session, _: datetime) -> int:
            return snapshots.prune(session, before)

        return self._make_snapshot(f"forgot snapshots before {before:%Y-%m-%d}", write) or 0

    def _of_snapshot(self, number: int, read: Callable[[Session, SnapshotRow], T]) -> T | None:
        def find(session: Session) -> T | None:
            row = session.get(SnapshotRow, number)
            return None if row is None else read(session, row)

        return self._work.read(find) if 0 < number <= MAX_ID else None

    def _make_snapshot(
        self,
        change: str,
        make: Callable[[Session, datetime], int | None],
        record: int | None = None,
    ) -> int | None:
        """``change``: what is done, for the audit, where anything is; ``record``: whose key is to
        stand there."""

        def write(session: Session, _: bool) -> int | None:
            query.one_publisher(session)
            now = self._clock()
            made = make(session, now)
            if made:
                audit.note(session, now, "snapshot", f"{change}{_key_of(session, record)}: {made}")
            return made

        return self._work.write(write)


def _key_of(session: Session, record: int | None) -> str:
    row = session.get(RecordRow, record) if record else None
    key = session.get(KeyRow, row.key_id) if row else None
    return f", {rows.key_from_row(key)}" if key else ""


def exists(session: Session, record: Record) -> bool:
    """Whoever brought it."""
    values = rows.record_values(record)
    same = select(RecordRow.id).where(RecordRow.key_id == query.find_key(session, record.key))
    for name in ("config", "evidence", "created_at"):
        same = same.where(getattr(RecordRow, name) == values[name])
    return session.scalar(same.limit(1)) is not None
