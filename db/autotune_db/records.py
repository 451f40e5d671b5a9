"""What is published: records, and the snapshots that they are in."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, select

from autotune.domain.key import Chip, Key
from autotune.domain.record import Change, Record, Snapshot
from autotune.domain.rule import ShapeRule
from autotune_db import audit, in_force, query, rows, snapshots
from autotune_db.known_checks import add_records, renew, with_known_checks
from autotune_db.rows import AnyRow
from autotune_db.tables import KEYS, RECORDS, SNAPSHOTS
from autotune_db.transaction import Adapter, reads, writes


class SqlRecords(Adapter):
    """Records of the newest snapshot, and publishing one more."""

    def save_record(self, record: Record) -> None:
        def write(connection: Connection, again: bool) -> None:
            query.one_publisher(connection)
            (complete,) = with_known_checks(connection, [record])
            key_id = query.key_id(connection, record.key)
            same = RECORDS.c.digest == rows.record_values(complete)["digest"]
            there = select(RECORDS.c.id).where(RECORDS.c.key_id == key_id, same).limit(1)
            if again and connection.scalar(there):  # the first attempt was committed after all
                return
            added, now = add_records(connection, {key_id: complete})[key_id], self._clock()
            key = record.key
            note = f"record {added}: {key.kernel} {key.problem} on {key.chip}"
            snapshots.publish(connection, added, now, by="", note=note)
            audit.note(connection, now, "publish", f"record {added}: {key}")

        self._work.write(write)

    @writes
    def save_rule(
        self, connection: Connection, keys: Sequence[Key], rule: ShapeRule | None
    ) -> Record | None:
        """Publish a rule in the place of those that the records of ``keys`` carry (None: in the
        place of none), all in one snapshot: with the record of the largest problem there, of those
        from this database before those that were pushed. None where no record carries it."""
        query.one_publisher(connection)
        ids = query.find_keys(connection, keys).values()
        records = in_force.records_of(connection, ids)

        def rank(number: int) -> tuple[bool, int, list[int]]:
            sizes = [size for _, size in records[number].key.problem.dims]
            return not records[number].pushed_by, sum(sizes), sizes

        carrier = max(records, key=rank) if records and rule else None
        changed = {
            n: replace(record, rule=rule if n == carrier else None)
            for n, record in records.items()
            if n == carrier or record.rule is not None
        }
        if not changed:
            return None
        now, top = self._clock(), max(add_records(connection, changed).values())
        snapshots.publish(connection, top, now, by="", note="a rule")
        audit.note(connection, now, "publish", f"a rule for {keys[0].kernel}")
        return changed[carrier] if carrier else None

    def record(self, key: Key, *, claimed: bool = False) -> Record | None:
        return self.records_of([key], claimed=claimed).get(key)

    @reads
    def records_of(
        self, connection: Connection, keys: Sequence[Key], *, claimed: bool = False
    ) -> dict[Key, Record]:
        """Of those that have one."""
        ids = query.find_keys(connection, keys)
        records = in_force.records_of(connection, ids.values(), claimed=claimed)
        return {key: replace(records[n], key=key) for key, n in ids.items() if n in records}

    @reads
    def records(
        self,
        connection: Connection,
        kernel: str | None = None,
        chip: Chip | None = None,
        *,
        claimed: bool = False,
        tell: Callable[[int, int], object] | None = None,
    ) -> Sequence[Record]:
        row, only = in_force.latest(connection), query.only(kernel, chip)
        if row is None:
            return []
        return snapshots.records(connection, row, *only, claimed=claimed, tell=tell)

    def published(
        self,
        kernel: str | None = None,
        chip: Chip | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> Sequence[tuple[int, Record]]:
        """All that was ever published, each with its number, newest first; ``before``: those with
        smaller numbers."""
        wanted = query.with_keys(RECORDS).where(*query.only(kernel, chip))
        return self._rows(query.page(wanted, RECORDS.c.id, before, limit), query.numbered_record)


class SqlSnapshots(Adapter):
    """Numbered sets of records, and who decides what is in the next one."""

    def snapshots(self, limit: int = 50, before: int | None = None) -> Sequence[Snapshot]:
        newest = query.page(select(SNAPSHOTS), SNAPSHOTS.c.id, before, limit)
        return self._rows(newest, rows.snapshot_from_row)

    @reads
    def snapshot_change(
        self, connection: Connection, number: int, since: int, *, claimed: bool = False
    ) -> Change | None:
        row, old = (query.get(connection, SNAPSHOTS, n) for n in (number, since))
        if row is None:
            return Change() if number == 0 else None
        return snapshots.change(connection, old, row, claimed=claimed)

    @writes
    def roll_back(self, connection: Connection, number: int, by: str = "") -> int | None:
        """Make a new snapshot with the records of an older one, pins included; its number. What is
        published later goes on from there. None: there is no such snapshot."""
        query.one_publisher(connection)
        target, now = query.get(connection, SNAPSHOTS, number), self._clock()
        if target is None:
            return None
        row = snapshots.roll_back(connection, target, now, by=by)
        made = renew(connection, row, None, now, by=by)
        audit.note(connection, now, "snapshot", f"rolled back to snapshot {number}: {made}")
        return made

    def pin(self, record: int, by: str = "") -> int | None:
        """Make a new snapshot from which on the key of a record keeps it, whatever is published.
        None: there is no such record."""
        return self._pinned(record, by, snapshots.pin, "pinned")

    def unpin(self, record: int, by: str = "") -> int | None:
        """Make a new snapshot from which on the key of a record has its newest one again."""
        return self._pinned(record, by, snapshots.unpin, "unpinned")

    @writes
    def _pinned(
        self, connection: Connection, record: int, by: str, pin: Callable[..., AnyRow], done: str
    ) -> int | None:
        query.one_publisher(connection)
        row, now = query.get(connection, RECORDS, record), self._clock()
        if row is None:
            return None
        said = f"{done} record {record}"
        snapshot = pin(connection, row, now, by=by, note=said)
        made = renew(connection, snapshot, [row.key_id], now, by=by)
        of = connection.execute(select(KEYS).where(KEYS.c.id == row.key_id)).one()
        key = rows.key_from_row(of)
        audit.note(connection, now, "snapshot", f"{said}, {key}: {made}")
        return made

    @writes
    def prune(self, connection: Connection, before: datetime) -> int:
        """Forget the snapshots made before a time, but the newest and what it rests on; how many.
        Records stay."""
        query.one_publisher(connection)
        count = snapshots.prune(connection, before)
        if count:
            change = f"forgot snapshots before {before:%Y-%m-%d}: {count}"
            audit.note(connection, self._clock(), "snapshot", change)
        return count
