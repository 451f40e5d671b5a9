"""Numbered sets of records: making them, and reading what is in one. Inside a transaction.

Whoever makes one holds the lock of ``query.one_publisher``.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
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
from autotune_db import rows
from autotune_db.query import AT_ONCE, get, in_parts, with_keys
from autotune_db.rows import AnyRow
from autotune_db.tables import KEYS, PINS, RECORDS, SNAPSHOTS

Members = dict[int, int]
"""The id of the record by the id of each key."""


def latest(connection: Connection) -> AnyRow | None:
    newest = select(func.max(SNAPSHOTS.c.id)).scalar_subquery()
    return connection.execute(select(SNAPSHOTS).where(SNAPSHOTS.c.id == newest)).first()


def publish(connection: Connection, record_id: int, now: datetime, *, by: str, note: str) -> AnyRow:
    """A new one, up to a new record."""
    before = latest(connection)
    values = {
        "record_id": record_id,
        "base_id": before and before.base_id,
        "floor": before.floor if before else 0,
    }
    return _made(connection, values, now, by, note)


def _made(
    connection: Connection, values: dict[str, Any], now: datetime, by: str, note: str
) -> AnyRow:
    said = {"created_at": now, "made_by": by, "note": note}
    made = insert(SNAPSHOTS).values(values | said).returning(SNAPSHOTS)
    return connection.execute(made).one()


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


def pin(connection: Connection, record: AnyRow, now: datetime, *, by: str) -> AnyRow:
    """From a new one on, the key of a record has it until it is unpinned."""
    row = unpin(connection, record.key_id, now, by=by, note=f"pinned record {record.id}")
    _pin(connection, record.key_id, record.id, row)
    return row


def unpin(connection: Connection, key_id: int, now: datetime, *, by: str, note: str) -> AnyRow:
    """From a new one on, the key has its newest record again."""
    before = latest(connection)
    assert before is not None  # there is a record, hence a snapshot
    row = publish(connection, before.record_id, now, by=by, note=note)
    _end(connection, and_(PINS.c.key_id == key_id, _in_force(before.id)), row)
    return row


def move_pin(connection: Connection, key_id: int, record: int, row: AnyRow) -> None:
    """From this new snapshot on, a key that is pinned has another record."""
    _end(connection, and_(PINS.c.key_id == key_id, _in_force(row.id)), row)
    _pin(connection, key_id, record, row)


def roll_back(connection: Connection, target: AnyRow, now: datetime, *, by: str) -> AnyRow:
    """A new one with the records of an older one. What is published later goes on from there."""
    before = latest(connection)
    assert before is not None
    top = before.record_id
    values = {"record_id": top, "base_id": target.id, "floor": top}
    row = _made(connection, values, now, by, f"rolled back to snapshot {target.id}")
    then = pinned(connection, target.id)
    _end(connection, _in_force(before.id), row)
    for key_id, number in then.items():
        _pin(connection, key_id, number, row)
    return row


def prune(connection: Connection, before: datetime) -> int:
    """Takes away the snapshots made before a time, but the latest and what others rest on; how
    many. Records stay: they are the history."""
    found = connection.execute(
        select(SNAPSHOTS.c.id, SNAPSHOTS.c.base_id, SNAPSHOTS.c.created_at)
    ).all()
    bases = {number: base for number, base, _ in found}
    newest = max(bases, default=None)
    kept: set[int] = set()
    for number, _, made_at in found:
        one = number if made_at >= before or number == newest else None
        while one is not None and one not in kept:
            kept.add(one)
            one = bases.get(one)
    gone = sorted(bases.keys() - kept)
    for start in range(0, len(gone), AT_ONCE):
        some = gone[start : start + AT_ONCE]
        connection.execute(delete(SNAPSHOTS).where(SNAPSHOTS.c.id.in_(some)))
    return len(gone)


def record_id(
    connection: Connection, row: AnyRow | Draft, key_id: Any, *, pinned: bool = True
) -> int | None:
    """The record of one key in a snapshot; with ``pinned=False`` as if this one had no pins."""
    pins = select(PINS.c.record_id).where(PINS.c.key_id == key_id, _in_force(row.id))
    newest_pin = pins.order_by(PINS.c.id.desc()).limit(1)
    held: int | None = connection.scalar(newest_pin) if pinned else None
    if held is not None:
        return held
    newest = select(func.max(RECORDS.c.id)).where(RECORDS.c.key_id == key_id)
    found = connection.scalar(newest.where(_between(row.floor, row.record_id)))
    base = get(connection, SNAPSHOTS, row.base_id) if row.base_id else None
    return record_id(connection, base, key_id) if found is None and base else found


def record_ids(connection: Connection, row: AnyRow | Draft, key_ids: Sequence[int]) -> Members:
    """The records of some keys in a snapshot."""
    base = get(connection, SNAPSHOTS, row.base_id) if row.base_id else None
    found = record_ids(connection, base, key_ids) if base else {}
    for part in in_parts(key_ids):
        own = RECORDS.c.key_id.in_(part), _between(row.floor, row.record_id)
        newest = select(RECORDS.c.key_id, func.max(RECORDS.c.id)).where(*own)
        pins = select(PINS.c.key_id, PINS.c.record_id).where(
            PINS.c.key_id.in_(part), _in_force(row.id)
        )
        for statement in (newest.group_by(RECORDS.c.key_id), pins.order_by(PINS.c.id)):
            found.update((key_id, number) for key_id, number in connection.execute(statement))
    return found


def records(connection: Connection, row: AnyRow, *only: ColumnElement[bool]) -> list[Record]:
    """All of a snapshot, or ``only`` those of some keys, newest first."""
    if row.base_id is None and not pinned(connection, row.id):
        return _read(connection, _newest_ids(0, row.record_id), *only)
    return by_id(connection, members(connection, row).values(), *only)


def change(connection: Connection, old: AnyRow, new: AnyRow) -> Change:
    """What makes the new one of the old one."""
    if _same_ground(connection, old, new):
        held = set(pinned(connection, new.id))
        newest = _newest_ids(old.record_id, new.record_id)
        if held:
            newest = newest.where(RECORDS.c.key_id.not_in(held))
        return Change(records=_read(connection, newest))
    before, after = members(connection, old), members(connection, new)
    changed = [record for key, record in after.items() if before.get(key) != record]
    gone = select(KEYS).where(KEYS.c.id.in_(before.keys() - after.keys()))
    return Change(
        records=by_id(connection, changed),
        removed=tuple(map(rows.key_from_row, connection.execute(gone))),
    )


def members(connection: Connection, row: AnyRow) -> Members:
    """What is in a snapshot: its base, the newest records over it, the pins over these."""
    base = get(connection, SNAPSHOTS, row.base_id) if row.base_id else None
    found = members(connection, base) if base else {}
    newest = select(RECORDS.c.key_id, func.max(RECORDS.c.id)).group_by(RECORDS.c.key_id)
    for key_id, number in connection.execute(newest.where(_between(row.floor, row.record_id))):
        found[key_id] = number
    return found | pinned(connection, row.id)


def _same_ground(connection: Connection, old: AnyRow, new: AnyRow) -> bool:
    """Whether nothing but newer records lies between two snapshots."""
    if (old.base_id, old.floor) != (new.base_id, new.floor) or old.id > new.id:
        return False
    began = and_(PINS.c.from_id > old.id, PINS.c.from_id <= new.id)
    ended = and_(PINS.c.until_id > old.id, PINS.c.until_id <= new.id)
    return connection.scalar(select(PINS.c.id).where(or_(began, ended)).limit(1)) is None


def pinned(connection: Connection, number: int) -> Members:
    """What pins say in the snapshot with that number."""
    pins = select(PINS.c.key_id, PINS.c.record_id).where(_in_force(number)).order_by(PINS.c.id)
    return {key_id: record for key_id, record in connection.execute(pins)}  # noqa: C416 (rows)


def _in_force(number: int) -> ColumnElement[bool]:
    """Of a pin, in the snapshot with this number."""
    return and_(PINS.c.from_id <= number, or_(PINS.c.until_id.is_(None), PINS.c.until_id > number))


def _pin(connection: Connection, key_id: int, record: int, row: AnyRow) -> None:
    values = {"key_id": key_id, "record_id": record, "from_id": row.id}
    connection.execute(insert(PINS).values(values))


def _end(connection: Connection, pins: ColumnElement[bool], row: AnyRow) -> None:
    connection.execute(update(PINS).where(pins).values(until_id=row.id))


def _between(floor: int, top: int) -> ColumnElement[bool]:
    return and_(RECORDS.c.id > floor, RECORDS.c.id <= top)


def _newest_ids(floor: int, top: int) -> Select[int]:
    """Of each key."""
    return select(func.max(RECORDS.c.id)).where(_between(floor, top)).group_by(RECORDS.c.key_id)


def by_id(connection: Connection, ids: Collection[int], *only: ColumnElement[bool]) -> list[Record]:
    """Records, newest first."""
    ordered = sorted(ids, reverse=True)
    found: list[Record] = []
    for start in range(0, len(ordered), AT_ONCE):
        found += _read(connection, ordered[start : start + AT_ONCE], *only)
    return found


def _read(connection: Connection, ids: Any, *only: ColumnElement[bool]) -> list[Record]:
    found = connection.execute(with_keys(RECORDS).where(RECORDS.c.id.in_(ids), *only)).all()
    newest = sorted(
        found, key=lambda row: row.id, reverse=True
    )  # a database would copy them for it
    return [rows.record_from_row(row, rows.key_from_row(row)) for row in newest]
