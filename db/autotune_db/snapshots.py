"""Numbered sets of records: making them, and reading what is in one. Inside a session.

Whoever makes one holds the lock of ``query.one_publisher``.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, delete, func, or_, select
from sqlalchemy.orm import Session

from autotune.domain.record import Record
from autotune.domain.snapshot import Change
from autotune_db import rows
from autotune_db.query import AT_ONCE, in_parts
from autotune_db.tables import KeyRow, PinRow, RecordRow, SnapshotRow

Members = dict[int, int]
"""The id of the record by the id of each key."""


def latest(session: Session) -> SnapshotRow | None:
    newest = select(func.max(SnapshotRow.id)).scalar_subquery()
    return session.scalar(select(SnapshotRow).where(SnapshotRow.id == newest))


def publish(session: Session, record_id: int, now: datetime, *, by: str, note: str) -> SnapshotRow:
    """A new one, up to a new record."""
    before = latest(session)
    row = SnapshotRow(
        record_id=record_id,
        base_id=before and before.base_id,
        floor=before.floor if before else 0,
        created_at=now,
        made_by=by,
        note=note,
    )
    session.add(row)
    session.flush()
    return row


def draft(before: SnapshotRow | None, top: int | None) -> SnapshotRow | None:
    """What the next snapshot has, up to a new record where there is one; it is not written."""
    if before is None:
        return None if top is None else SnapshotRow(id=0, record_id=top, floor=0)
    most = before.record_id if top is None else top
    return SnapshotRow(id=before.id, record_id=most, base_id=before.base_id, floor=before.floor)


def pin(session: Session, record: RecordRow, now: datetime, *, by: str) -> SnapshotRow:
    """From a new one on, the key of a record has it until it is unpinned."""
    row = unpin(session, record.key_id, now, by=by, note=f"pinned record {record.id}")
    session.add(PinRow(key_id=record.key_id, record_id=record.id, from_id=row.id))
    return row


def unpin(session: Session, key_id: int, now: datetime, *, by: str, note: str) -> SnapshotRow:
    """From a new one on, the key has its newest record again."""
    before = latest(session)
    assert before is not None  # there is a record, hence a snapshot
    row = publish(session, before.record_id, now, by=by, note=note)
    _end(session.scalars(select(PinRow).where(PinRow.key_id == key_id, _in_force(before.id))), row)
    return row


def move_pin(session: Session, key_id: int, record: int, row: SnapshotRow) -> None:
    """From this new snapshot on, a key that is pinned has another record."""
    held = select(PinRow).where(PinRow.key_id == key_id, _in_force(row.id))
    _end(session.scalars(held), row)
    session.add(PinRow(key_id=key_id, record_id=record, from_id=row.id))


def roll_back(session: Session, target: SnapshotRow, now: datetime, *, by: str) -> SnapshotRow:
    """A new one with the records of an older one. What is published later goes on from there."""
    before = latest(session)
    assert before is not None
    row = SnapshotRow(
        record_id=before.record_id,
        base_id=target.id,
        floor=before.record_id,
        created_at=now,
        made_by=by,
        note=f"rolled back to snapshot {target.id}",
    )
    session.add(row)
    session.flush()
    then, now_held = (
        {pin.key_id: pin for pin in session.scalars(select(PinRow).where(_in_force(number)))}
        for number in (target.id, before.id)
    )
    _end(now_held.values(), row)
    for old in then.values():
        again = PinRow(key_id=old.key_id, record_id=old.record_id, from_id=row.id)
        session.add(again)
    return row


def prune(session: Session, before: datetime) -> int:
    """Takes away the snapshots made before a time, but the latest and what others rest on; how
    many. Records stay: they are the history."""
    found = session.execute(
        select(SnapshotRow.id, SnapshotRow.base_id, SnapshotRow.created_at)
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
        session.execute(delete(SnapshotRow).where(SnapshotRow.id.in_(some)))
    return len(gone)


def record_id(
    session: Session, row: SnapshotRow, key_id: Any, *, pinned: bool = True
) -> int | None:
    """The record of one key in a snapshot; with ``pinned=False`` as if this one had no pins."""
    pins = select(PinRow.record_id).where(PinRow.key_id == key_id, _in_force(row.id))
    held = session.scalar(pins.order_by(PinRow.id.desc()).limit(1)) if pinned else None
    if held is not None:
        return held
    newest = select(func.max(RecordRow.id)).where(RecordRow.key_id == key_id)
    found = session.scalar(newest.where(_between(row.floor, row.record_id)))
    base = session.get(SnapshotRow, row.base_id) if row.base_id else None
    return record_id(session, base, key_id) if found is None and base else found


def record_ids(session: Session, row: SnapshotRow, key_ids: Sequence[int]) -> Members:
    """The records of some keys in a snapshot."""
    base = session.get(SnapshotRow, row.base_id) if row.base_id else None
    found = record_ids(session, base, key_ids) if base else {}
    for part in in_parts(key_ids):
        own = RecordRow.key_id.in_(part), _between(row.floor, row.record_id)
        newest = select(RecordRow.key_id, func.max(RecordRow.id)).where(*own)
        pins = select(PinRow.key_id, PinRow.record_id).where(
            PinRow.key_id.in_(part), _in_force(row.id)
        )
        for statement in (newest.group_by(RecordRow.key_id), pins.order_by(PinRow.id)):
            found.update((key_id, number) for key_id, number in session.execute(statement))
    return found


def records(session: Session, row: SnapshotRow, *only: ColumnElement[bool]) -> list[Record]:
    """All of a snapshot, or ``only`` those of some keys, newest first."""
    if row.base_id is None and not pinned(session, row.id):
        return _read(session, _newest_ids(0, row.record_id), *only)
    return by_id(session, members(session, row).values(), *only)


def change(session: Session, old: SnapshotRow, new: SnapshotRow) -> Change:
    """What makes the new one of the old one."""
    if _same_ground(session, old, new):
        held = set(pinned(session, new.id))
        newest = _newest_ids(old.record_id, new.record_id)
        if held:
            newest = newest.where(RecordRow.key_id.not_in(held))
        return Change(records=_read(session, newest))
    before, after = members(session, old), members(session, new)
    changed = [record for key, record in after.items() if before.get(key) != record]
    gone = select(KeyRow).where(KeyRow.id.in_(before.keys() - after.keys()))
    return Change(
        records=by_id(session, changed),
        removed=tuple(map(rows.key_from_row, session.scalars(gone))),
    )


def members(session: Session, row: SnapshotRow) -> Members:
    """What is in a snapshot: its base, the newest records over it, the pins over these."""
    base = session.get(SnapshotRow, row.base_id) if row.base_id else None
    found = members(session, base) if base else {}
    newest = select(RecordRow.key_id, func.max(RecordRow.id)).group_by(RecordRow.key_id)
    for key_id, number in session.execute(newest.where(_between(row.floor, row.record_id))):
        found[key_id] = number
    return found | pinned(session, row.id)


def _same_ground(session: Session, old: SnapshotRow, new: SnapshotRow) -> bool:
    """Whether nothing but newer records lies between two snapshots."""
    if (old.base_id, old.floor) != (new.base_id, new.floor) or old.id > new.id:
        return False
    began = and_(PinRow.from_id > old.id, PinRow.from_id <= new.id)
    ended = and_(PinRow.until_id > old.id, PinRow.until_id <= new.id)
    return session.scalar(select(PinRow.id).where(or_(began, ended)).limit(1)) is None


def pinned(session: Session, number: int) -> Members:
    """What pins say in the snapshot with that number."""
    pins = select(PinRow.key_id, PinRow.record_id).where(_in_force(number)).order_by(PinRow.id)
    return {key_id: record for key_id, record in session.execute(pins)}  # noqa: C416 (rows)


def _in_force(number: int) -> ColumnElement[bool]:
    """Of a pin, in the snapshot with this number."""
    return and_(PinRow.from_id <= number, or_(PinRow.until_id.is_(None), PinRow.until_id > number))


def _end(pins: Collection[PinRow] | Any, row: SnapshotRow) -> None:
    for one in list(pins):
        one.until_id = row.id


def _between(floor: int, top: int) -> ColumnElement[bool]:
    return and_(RecordRow.id > floor, RecordRow.id <= top)


def _newest_ids(floor: int, top: int) -> Select[int]:
    """Of each key."""
    return select(func.max(RecordRow.id)).where(_between(floor, top)).group_by(RecordRow.key_id)


def by_id(session: Session, ids: Collection[int], *only: ColumnElement[bool]) -> list[Record]:
    """Records, newest first."""
    ordered = sorted(ids, reverse=True)
    found: list[Record] = []
    for start in range(0, len(ordered), AT_ONCE):
        found += _read(session, ordered[start : start + AT_ONCE], *only)
    return found


def _read(session: Session, ids: Any, *only: ColumnElement[bool]) -> list[Record]:
    query = select(KeyRow, RecordRow).join(RecordRow).where(RecordRow.id.in_(ids), *only)
    found = session.execute(query.order_by(RecordRow.id.desc()))
    return [rows.record_from_row(record, rows.key_from_row(key)) for key, record in found]
