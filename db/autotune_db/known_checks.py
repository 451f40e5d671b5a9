"""What is known of records under other toolchains stays with their configs: whatever is published,
pushed, pinned or rolled back later, nobody is handed what is known not to work.

The newest record of a key and a config knows the most. Inside a session that holds the lock of
``query.one_publisher``.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.domain.config import Config
from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.domain.record_check import RecordCheck
from autotune_db import query, rows, snapshots
from autotune_db.tables import KeyRow, RecordRow, SnapshotRow

Finding = tuple[Key, Config, RecordCheck]
"""Of the config of a record, by its key."""


class Noted(NamedTuple):
    """``record_id``: of the record with the checks, ``last_id``: of the last one of its key."""

    key_id: int
    record_id: int
    last_id: int
    is_pinned: bool


def noted(session: Session, before: SnapshotRow, found: Iterable[Finding]) -> list[Noted]:
    """New rows of records of a snapshot, with what was found of them."""
    by_key: dict[Key, list[Finding]] = {}
    for one in found:
        by_key.setdefault(one[0], []).append(one)
    made = (_noted(session, before, key, some) for key, some in by_key.items())
    return [one for one in made if one is not None]


def publish(
    session: Session, top: int, new: Sequence[Noted], now: datetime, *, by: str, note: str
) -> SnapshotRow:
    """A new snapshot with these, and with all records up to ``top``."""
    top = max([top, *(one.last_id for one in new)])
    row = snapshots.publish(session, top, now, by=by, note=note)
    for one in new:
        if one.is_pinned:
            snapshots.move_pin(session, one.key_id, one.record_id, row)
    return row


def renew(
    session: Session, row: SnapshotRow, key_ids: Sequence[int], now: datetime, *, by: str
) -> SnapshotRow:
    """The snapshot again, which may have older records of some keys; another one where more is
    known of these by now."""
    served = snapshots.record_ids(session, row, key_ids).values()
    records = [with_known_checks(session, _record(session, number)) for number in served]
    found = [(one.key, one.config, check) for one in records for check in one.checks]
    new = noted(session, row, found)
    note = f"{row.note}, with what is known by now"
    return publish(session, row.record_id, new, now, by=by, note=note) if new else row


def with_known_checks(session: Session, record: Record) -> Record:
    """With what is known of its config, where it says nothing of that itself."""
    key_id = query.find_key(session, record.key)
    same = RecordRow.key_id == key_id, RecordRow.config == rows.record_values(record)["config"]
    newest = select(RecordRow).where(*same).order_by(RecordRow.id.desc()).limit(1)
    row = session.scalar(newest)
    for check in rows.record_from_row(row, record.key).checks if row else ():
        if record.check(check.toolchain) is None:
            record = record.with_check(check)
    return record


def add_record(session: Session, record: Record) -> int:
    """Its id."""
    row = RecordRow(**rows.record_values(record), key_id=query.key_id(session, record.key))
    session.add(row)
    session.flush()
    return row.id


def _noted(
    session: Session, before: SnapshotRow, key: Key, found: Sequence[Finding]
) -> Noted | None:
    """A new row of the published record; behind it the one that a pin hides, for the day that it
    is unpinned."""
    key_id = query.find_key(session, key)
    served = key_id and snapshots.record_id(session, before, key_id)
    newest = key_id and snapshots.record_id(session, before, key_id, pinned=False)
    if not key_id or not served:
        return None
    record = known = _record(session, served)
    for _, config, check in found:
        if check.toolchain == key.toolchain or config != record.config:
            continue  # what is published for a toolchain was compiled there
        if _is_news(record.check(check.toolchain), check):
            record = record.with_check(check)
    if set(record.checks) == set(known.checks):
        return None
    added = add_record(session, record)
    hidden = newest if newest and newest != served else None
    last = add_record(session, _record(session, hidden)) if hidden else added
    pinned = snapshots.is_pinned(session, before, key_id)
    return Noted(key_id, added, last, pinned)


def _is_news(known: RecordCheck | None, check: RecordCheck) -> bool:
    if known is None:
        return True
    says_more = (known.verdict, known.finding) != (check.verdict, check.finding)
    return says_more and known.checked_at <= check.checked_at


def _record(session: Session, number: int) -> Record:
    statement = select(KeyRow, RecordRow).join(RecordRow).where(RecordRow.id == number)
    key, row = session.execute(statement).one()
    return rows.record_from_row(row, rows.key_from_row(key))
