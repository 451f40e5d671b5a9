"""Numbered sets of records: making them, and what is in one. Inside a transaction.

Whoever makes one holds the lock of ``query.one_publisher``. Which record a key has in one:
``in_force``.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from autotune.domain.key import Key
from autotune.domain.record import Change, Record
from autotune_db import query
from autotune_db.damage import readable
from autotune_db.in_force import Members, by_id, latest, layers, members, pin_in_force
from autotune_db.rows import AnyRow, key_from_row
from autotune_db.tables import KEYS, PINS, RECORDS, SNAPSHOTS


def publish(connection: Connection, record_id: int, now: datetime, *, by: str, note: str) -> AnyRow:
    """A new one, up to a new record."""
    before = latest(connection)
    base_id, floor = (before.base_id, before.floor) if before else (None, 0)
    values = {"record_id": record_id, "base_id": base_id, "floor": floor}
    return _made(connection, **values, created_at=now, made_by=by, note=note)


def _made(connection: Connection, **values: Any) -> AnyRow:
    return connection.execute(insert(SNAPSHOTS).values(values).returning(SNAPSHOTS)).one()


def pin(connection: Connection, record: AnyRow, now: datetime, *, by: str, note: str) -> AnyRow:
    """From a new one on, the key of a record has it until it is unpinned."""
    row = unpin(connection, record, now, by=by, note=note)
    _pin(connection, {record.key_id: record.id}, row)
    return row


def unpin(connection: Connection, record: AnyRow, now: datetime, *, by: str, note: str) -> AnyRow:
    """From a new one on, the key of a record has its newest one again."""
    before = latest(connection)
    assert before is not None  # there is a record, hence a snapshot
    row = publish(connection, before.record_id, now, by=by, note=note)
    _end(connection, row, before.id, PINS.c.key_id == record.key_id)
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
        is_old = any(made_at < before for made_at in query.times([row.created_at]))
        number = None if is_old and row.id != newest else row.id
        while number is not None and number not in needed:
            needed.add(number)
            number = bases.get(number)
    gone = bases.keys() - needed
    for part in query.in_parts(gone):
        connection.execute(delete(SNAPSHOTS).where(SNAPSHOTS.c.id.in_(part)))
    return len(gone)


def pinned(connection: Connection, number: int) -> Members:
    """What pins say in the snapshot with that number."""
    pins = select(PINS.c.key_id, PINS.c.record_id).where(pin_in_force(number)).order_by(PINS.c.id)
    return {key_id: record for key_id, record in connection.execute(pins)}  # noqa: C416 (rows)


def records(
    connection: Connection,
    row: AnyRow,
    *only: ColumnElement[bool],
    claimed: bool = False,
    tell: Callable[[int, int], object] | None = None,
) -> list[Record]:
    """All of a snapshot, or ``only`` those of some keys, newest first. ``tell`` hears how many of
    how many are read."""
    keys = connection.scalars(select(KEYS.c.id).where(*only)) if only else None
    ids = sorted(members(connection, row, keys, claimed=claimed).values(), reverse=True)
    records: list[Record] = []
    for part in query.batched(ids, query.AT_ONCE):
        records += by_id(connection, part).values()
        if tell:
            tell(len(records), len(ids))
    return records


def change(
    connection: Connection, old: AnyRow | None, new: AnyRow, *, claimed: bool = False
) -> Change:
    """What makes the new one of the old one, or of nothing."""
    keys = _touched(connection, old, new) if old else None
    empty: dict[bool, Members] = {True: {}, False: {}}
    was, of = (layers(connection, row, keys, False, True) if row else empty for row in (old, new))
    claims_before, claims = (
        set() if claimed else set(both[True]) - set(both[False]) for both in (was, of)
    )
    before, after = (both[True] | both[False] if claimed else both[False] for both in (was, of))
    changed = [record for key, record in after.items() if before.get(key) != record]
    return Change(
        records=list(by_id(connection, changed).values()),
        removed=tuple(_keys(connection, before.keys() - after.keys()).values()),
        claims={
            key: number in claims
            for number, key in _keys(connection, claims_before ^ claims).items()
        },
    )


def _keys(connection: Connection, numbers: Iterable[int]) -> dict[int, Key]:
    return {
        number: key
        for part in query.in_parts(numbers)
        for number, key in readable(
            connection,
            select(KEYS).where(KEYS.c.id.in_(part)),
            lambda row: (row.id, key_from_row(row)),
        )
    }


def _touched(connection: Connection, old: AnyRow, new: AnyRow) -> set[int] | None:
    """The keys that two snapshots may differ in; None where that may be all."""
    if (old.base_id, old.floor) != (new.base_id, new.floor):
        return None
    (first, top), (last, end) = sorted((row.id, row.record_id) for row in (old, new))
    places = (RECORDS.c.id, top, end), (RECORDS.c.until_id, first, last)
    pins = (PINS.c.from_id, first, last), (PINS.c.until_id, first, last)
    statements = (
        select(column.table.c.key_id).where(column > low, column <= high)
        for column, low, high in (*places, *pins)
    )
    return {number for statement in statements for number in connection.scalars(statement)}


def _pin(connection: Connection, records: Members, row: AnyRow) -> None:
    for key_id, record in records.items():
        values = {"key_id": key_id, "record_id": record, "from_id": row.id}
        connection.execute(insert(PINS).values(values))


def _end(connection: Connection, row: AnyRow, before: int, *only: ColumnElement[bool]) -> None:
    """Pins that are in force in the snapshot ``before`` are so no longer in the new one."""
    connection.execute(update(PINS).where(pin_in_force(before), *only).values(until_id=row.id))
