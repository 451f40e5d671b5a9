"""What is published: records, and the snapshots that they are in."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection, select

from autotune.domain.chip import Chip
from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.domain.rule import ShapeRule
from autotune.domain.snapshot import Change, Snapshot
from autotune_db import audit, query, rows, snapshots
from autotune_db.adapter import Adapter
from autotune_db.known_checks import add_records, renew, with_known_checks
from autotune_db.query import MAX_ID
from autotune_db.rows import AnyRow
from autotune_db.tables import KEYS, RECORDS, SNAPSHOTS

T = TypeVar("T")


class SqlRecords(Adapter):
    """Records of the newest snapshot, and publishing one more."""

    def save_record(self, record: Record) -> None:
        def write(connection: Connection, again: bool) -> None:
            query.one_publisher(connection)
            (found,) = with_known_checks(connection, [record])
            if again and exists(connection, found):  # the first attempt was committed after all
                return
            (added,) = add_records(
                connection, {query.key_id(connection, record.key): found}
            ).values()
            now = self._clock()
            snapshots.publish(connection, added, now, by="", note=f"record {added}")
            audit.note(connection, now, "publish", f"record {added}: {record.key}")

        self._work.write(write)

    def save_rule(self, keys: Sequence[Key], rule: ShapeRule | None) -> Record | None:
        """Publish a rule in the place of those that the records of ``keys`` carry (None: in the
        place of none), all in one snapshot: with the record of the largest problem there, of those
        from this database before those that were pushed. None where no record carries it."""

        def write(connection: Connection, _: bool) -> Record | None:
            query.one_publisher(connection)
            row, ids = snapshots.latest(connection), query.find_keys(connection, keys)
            members = snapshots.record_ids(connection, row, list(ids.values())) if row else {}
            there = snapshots.by_id(connection, members.values())
            carrier = max(there, key=_rank) if there and rule is not None else None
            changed = [one for one in there if one is carrier or one.rule is not None]
            if not changed:
                return None
            now = self._clock()
            told = {
                ids[one.key]: replace(one, rule=rule if one is carrier else None) for one in changed
            }
            top = max(add_records(connection, told).values())
            snapshots.publish(connection, top, now, by="", note="a rule")
            audit.note(connection, now, "publish", f"a rule for {changed[0].key.kernel}")
            return told[ids[carrier.key]] if carrier else None

        return self._work.write(write)

    def record(self, key: Key) -> Record | None:
        def find(connection: Connection) -> Record | None:
            row, key_id = snapshots.latest(connection), query.find_key(connection, key)
            if row is None or key_id is None:
                return None
            number = snapshots.record_id(connection, row, key_id)
            found = query.get(connection, RECORDS, number)
            return rows.record_from_row(found, key) if found else None

        return self._work.read(find)

    def records(self, kernel: str | None = None, chip: Chip | None = None) -> Sequence[Record]:
        def find(connection: Connection) -> list[Record]:
            row = snapshots.latest(connection)
            return snapshots.records(connection, row, *query.only(kernel, chip)) if row else []

        return self._work.read(find)

    def published(
        self,
        kernel: str | None = None,
        chip: Chip | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> Sequence[tuple[int, Record]]:
        statement = query.page(query.numbered_records(kernel, chip), RECORDS.c.id, before, limit)
        return self._work.read(
            lambda s: [
                (row.id, rows.record_from_row(row, rows.key_from_row(row)))
                for row in s.execute(statement)
            ]
        )


class SqlSnapshots(Adapter):
    """With ``SqlKernels`` a ``SnapshotStore``, with ``SqlRecords`` a ``ReleaseStore``."""

    def snapshots(self, limit: int = 50, before: int | None = None) -> Sequence[Snapshot]:
        statement = query.page(select(SNAPSHOTS), SNAPSHOTS.c.id, before, limit)
        return self._work.read(lambda s: list(map(rows.snapshot_from_row, s.execute(statement))))

    def snapshot_change(self, number: int, since: int) -> Change | None:
        def find(connection: Connection, row: AnyRow) -> Change:
            old = query.get(connection, SNAPSHOTS, since) if 0 < since <= MAX_ID else None
            if old is None:
                return Change(records=snapshots.records(connection, row))
            return snapshots.change(connection, old, row)

        return Change() if number == 0 else self._of_snapshot(number, find)

    def roll_back(self, number: int, by: str = "") -> int | None:
        def write(connection: Connection, now: datetime) -> int | None:
            target = query.get(connection, SNAPSHOTS, number)
            if target is None:
                return None
            made = snapshots.roll_back(connection, target, now, by=by)
            ids = list(snapshots.members(connection, made))
            return renew(connection, made, ids, now, by=by)

        done = f"rolled back to snapshot {number}"
        return self._make_snapshot(done, write) if 0 < number <= MAX_ID else None

    def pin(self, record: int, by: str = "") -> int | None:
        def write(connection: Connection, now: datetime) -> int | None:
            row = query.get(connection, RECORDS, record)
            if row is None:
                return None
            made = snapshots.pin(connection, row, now, by=by)
            return renew(connection, made, [row.key_id], now, by=by)

        done = f"pinned record {record}"
        return self._make_snapshot(done, write, record) if 0 < record <= MAX_ID else None

    def unpin(self, record: int, by: str = "") -> int | None:
        done = f"unpinned record {record}"

        def write(connection: Connection, now: datetime) -> int | None:
            row = query.get(connection, RECORDS, record)
            if row is None:
                return None
            number: int = snapshots.unpin(connection, row.key_id, now, by=by, note=done).id
            return number

        return self._make_snapshot(done, write, record) if 0 < record <= MAX_ID else None

    def prune(self, before: datetime) -> int:
        def write(connection: Connection, _: datetime) -> int:
            return snapshots.prune(connection, before)

        return self._make_snapshot(f"forgot snapshots before {before:%Y-%m-%d}", write) or 0

    def _of_snapshot(self, number: int, read: Callable[[Connection, AnyRow], T]) -> T | None:
        def find(connection: Connection) -> T | None:
            row = query.get(connection, SNAPSHOTS, number)
            return None if row is None else read(connection, row)

        return self._work.read(find) if 0 < number <= MAX_ID else None

    def _make_snapshot(
        self,
        change: str,
        make: Callable[[Connection, datetime], int | None],
        record: int | None = None,
    ) -> int | None:
        """``change``: what is done, for the audit, where anything is; ``record``: whose key is to
        stand there."""

        def write(connection: Connection, _: bool) -> int | None:
            query.one_publisher(connection)
            now = self._clock()
            made = make(connection, now)
            if made:
                audit.note(
                    connection, now, "snapshot", f"{change}{_key_of(connection, record)}: {made}"
                )
            return made

        return self._work.write(write)


def _rank(record: Record) -> tuple[bool, int, list[int]]:
    sizes = [size for _, size in record.key.problem.dims]
    return not record.pushed_by, sum(sizes), sizes


def _key_of(connection: Connection, record: int | None) -> str:
    row = query.get(connection, RECORDS, record) if record else None
    key = query.get(connection, KEYS, row.key_id) if row else None
    return f", {rows.key_from_row(key)}" if key else ""


def exists(connection: Connection, record: Record) -> bool:
    """Whoever brought it."""
    values = rows.record_values(record)
    same = select(RECORDS.c.id).where(RECORDS.c.key_id == query.find_key(connection, record.key))
    for name in ("config", "evidence", "created_at"):
        same = same.where(RECORDS.c[name] == values[name])
    return connection.scalar(same.limit(1)) is not None
