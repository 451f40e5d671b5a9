"""Numbered sets of records: making them, and reading what is in one. Inside a transaction.

Whoever makes one holds the lock of ``query.one_publisher``.
"""

from collections.abc import Iterable
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from autotune.domain.record import Record
from autotune.domain.snapshot import Change
from autotune_db.query import get, in_parts, numbered_record, with_keys
from autotune_db.rows import AnyRow, key_from_row
from autotune_db.tables import KEYS, PINS, RECORDS, SNAPSHOTS

Members = dict[int, int]
"""The id of the record by the id of each key."""


def latest(connection: Connection) -> AnyRow | None:
    newest = select(func.max(SNAPSHOTS.c.id)).scalar_subquery()
    return connection.execute(select(SNAPSHOTS).where(SNAPSHOTS.c.id == newest)).first()


def latest_number(connection: Connection) -> int:
    """0, which is empty, before anything is published."""
    return connection.scalar(select(func.max(SNAPSHOTS.c.id))) or 0


def publish(connection: Connection, record_id: int, now: datetime, *, by: str, note: str) -> AnyRow:
    """A new one, up to a new record."""
    before = latest(connection)
    base_id, floor = (before.base_id, before.floor) if before else (None, 0)
    values = {"record_id": record_id, "base_id": base_id, "floor": floor}
    return _made(connection, **values, created_at=now, made_by=by, note=note)


def _made(connection: Connection, **values: Any) -> AnyRow:
    return connection.execute(insert(SNAPSHOTS).values(values).returning(SNAPSHOTS)).one()


class Draft(NamedTuple):
    """As the row of a snapshot that is not written."""

    id: int
    record_id: int
    base_id: int | None
    floor: int


def draft(before: AnyRow | None, top: int | None) -> Draft | None:
    """What the next snapshot has, up to a new record where there is one."""
    if before is None:
        return None if top is None else Draft(id=0, record_id=top, base_id=None, floor=0)
    most = before.record_id if top is None else top
    return Draft(id=before.id, record_id=most, base_id=before.base_id, floor=before.floor)


def pin(connection: Connection, record: AnyRow, now: datetime, *, by: str, note: str) -> AnyRow:
    """From a new one on, the key of a record has it until it is unpinned."""
    row = unpin(connection, record.key_id, now, by=by, note=note)
    _pin(connection, {record.key_id: record.id}, row)
    return row


def unpin(connection: Connection, key_id: int, now: datetime, *, by: str, note: str) -> AnyRow:
    """From a new one on, the key has its newest record again."""
    before = latest(connection)
    assert before is not None  # there is a record, hence a snapshot
    row = publish(connection, before.record_id, now, by=by, note=note)
    _end(connection, row, before.id, PINS.c.key_id == key_id)
    return row


def move_pin(connection: Connection, key_id: int, record: int, row: AnyRow) -> None:
    """From this new snapshot on, a key that is pinned has another record."""
    _end(connection, row, row.id, PINS.c.key_id == key_id)
    _pin(connection, {key_id: record}, row)


def roll_back(connection: Connection, target: AnyRow, now: datetime, *, by: str) -> AnyRow:
    """A new one with the records of an older one. What is published later goes on from there."""
    before = latest(connection)
    assert before is not None
    top, note = before.record_id, f"rolled back to snapshot {target.id}"
    values = {"record_id": top, "base_id": target.id, "floor": top}
    row = _made(connection, **values, created_at=now, made_by=by, note=note)
    then = pinned(connection, target.id)
    _end(connection, row, before.id)
    _pin(connection, then, row)
    return row


def prune(connection: Connection, before: datetime) -> int:
    """Takes away the snapshots made before a time, but the latest and what others rest on; how
    many. Records stay: they are the history."""
    columns = (SNAPSHOTS.c.id, SNAPSHOTS.c.base_id, SNAPSHOTS.c.created_at)
    rows = connection.execute(select(*columns)).all()
    bases = {row.id: row.base_id for row in rows}
    newest = max(bases, default=None)
    needed: set[int] = set()
    for row in rows:
        number = row.id if row.created_at >= before or row.id == newest else None
        while number is not None and number not in needed:
            needed.add(number)
            number = bases.get(number)
    gone = bases.keys() - needed
    for part in in_parts(gone):
        connection.execute(delete(SNAPSHOTS).where(SNAPSHOTS.c.id.in_(part)))
    return len(gone)


def record_id(
    connection: Connection, row: AnyRow | Draft, key_id: int, *, pinned: bool = True
) -> int | None:
    """The record of one key in a snapshot; with ``pinned=False`` as if this one had no pins."""
    pins = select(PINS.c.record_id).where(PINS.c.key_id == key_id, _in_force(row.id))
    number = connection.scalar(pins.order_by(PINS.c.id.desc()).limit(1)) if pinned else None
    if number is None:
        newest = select(func.max(RECORDS.c.id)).where(RECORDS.c.key_id == key_id)
        number = connection.scalar(newest.where(_between(row.floor, row.record_id)))
    base = get(connection, SNAPSHOTS, row.base_id) if number is None else None
    return record_id(connection, base, key_id) if base else number


def members(
    connection: Connection, row: AnyRow | Draft, key_ids: Iterable[int] | None = None
) -> Members:
    """What is in a snapshot, or what some keys have in it: its base, the newest records over it,
    the pins over these."""
    wanted = None if key_ids is None else set(key_ids)
    base = get(connection, SNAPSHOTS, row.base_id)
    ids = members(connection, base, wanted) if base else {}
    newest = select(RECORDS.c.key_id, func.max(RECORDS.c.id)).group_by(RECORDS.c.key_id)
    newest = newest.where(_between(row.floor, row.record_id))
    pins = select(PINS.c.key_id, PINS.c.record_id).where(_in_force(row.id)).order_by(PINS.c.id)
    if wanted is None:
        return ids | _pairs(connection, newest) | _pairs(connection, pins)
    for part in in_parts(wanted):
        ids |= _pairs(connection, newest.where(RECORDS.c.key_id.in_(part)))
        ids |= _pairs(connection, pins.where(PINS.c.key_id.in_(part)))
    return ids


def in_force(
    connection: Connection, key_ids: Iterable[int], *only: ColumnElement[bool]
) -> dict[int, Record]:
    """The records of some keys in the newest snapshot, by the numbers of these."""
    row = latest(connection)
    ids = members(connection, row, key_ids) if row else {}
    records = by_id(connection, ids.values(), *only)
    return {key_id: records[n] for key_id, n in ids.items() if n in records}


def pinned(connection: Connection, number: int) -> Members:
    """What pins say in the snapshot with that number."""
    pins = select(PINS.c.key_id, PINS.c.record_id).where(_in_force(number))
    return _pairs(connection, pins.order_by(PINS.c.id))


def _pairs(connection: Connection, statement: Select[Any, Any]) -> Members:
    return {key_id: number for key_id, number in connection.execute(statement)}  # noqa: C416 (rows)


def records(connection: Connection, row: AnyRow, *only: ColumnElement[bool]) -> list[Record]:
    """All of a snapshot, or ``only`` those of some keys, newest first."""
    if row.base_id is None and not pinned(connection, row.id):
        numbered = _read(connection, _newest_ids(0, row.record_id), *only)
        return [record for _, record in numbered]
    return list(by_id(connection, members(connection, row).values(), *only).values())


def change(connection: Connection, old: AnyRow, new: AnyRow) -> Change:
    """What makes the new one of the old one."""
    if _same_ground(connection, old, new):
        newest = _newest_ids(old.record_id, new.record_id)
        if pins := pinned(connection, new.id):
            newest = newest.where(RECORDS.c.key_id.not_in(pins))
        return Change(records=[record for _, record in _read(connection, newest)])
    before, after = members(connection, old), members(connection, new)
    changed = [record for key, record in after.items() if before.get(key) != record]
    gone = select(KEYS).where(KEYS.c.id.in_(before.keys() - after.keys()))
    return Change(
        records=list(by_id(connection, changed).values()),
        removed=tuple(map(key_from_row, connection.execute(gone))),
    )


def _same_ground(connection: Connection, old: AnyRow, new: AnyRow) -> bool:
    """Whether nothing but newer records lies between two snapshots."""
    if (old.base_id, old.floor) != (new.base_id, new.floor) or old.id > new.id:
        return False
    began = and_(PINS.c.from_id > old.id, PINS.c.from_id <= new.id)
    ended = and_(PINS.c.until_id > old.id, PINS.c.until_id <= new.id)
    return connection.scalar(select(PINS.c.id).where(or_(began, ended)).limit(1)) is None


def _in_force(number: int) -> ColumnElement[bool]:
    """Of a pin, in the snapshot with this number."""
    return and_(PINS.c.from_id <= number, or_(PINS.c.until_id.is_(None), PINS.c.until_id > number))


def _pin(connection: Connection, records: Members, row: AnyRow) -> None:
    for key_id, record in records.items():
        values = {"key_id": key_id, "record_id": record, "from_id": row.id}
        connection.execute(insert(PINS).values(values))


def _end(connection: Connection, row: AnyRow, before: int, *only: ColumnElement[bool]) -> None:
    """Pins that are in force in the snapshot ``before`` are so no longer in the new one."""
    connection.execute(update(PINS).where(_in_force(before), *only).values(until_id=row.id))


def _between(floor: int, top: int) -> ColumnElement[bool]:
    return and_(RECORDS.c.id > floor, RECORDS.c.id <= top)


def _newest_ids(floor: int, top: int) -> Select[int]:
    """Of each key."""
    return select(func.max(RECORDS.c.id)).where(_between(floor, top)).group_by(RECORDS.c.key_id)


def by_id(
    connection: Connection, ids: Iterable[int], *only: ColumnElement[bool]
) -> dict[int, Record]:
    """Records by their numbers, newest first."""
    parts = reversed(list(in_parts(ids)))
    return {n: record for part in parts for n, record in _read(connection, part, *only)}


def _read(connection: Connection, ids: Any, *only: ColumnElement[bool]) -> list[tuple[int, Record]]:
    """Sorted here: a database would copy the rows for it."""
    rows = connection.execute(with_keys(RECORDS).where(RECORDS.c.id.in_(ids), *only))
    return sorted(map(numbered_record, rows), key=itemgetter(0), reverse=True)
