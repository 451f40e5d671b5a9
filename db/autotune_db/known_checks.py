"""What is known of records under other toolchains stays with their configs: whatever is published,
pushed, pinned or rolled back later, nobody is handed what is known not to work.

The newest record of a key and a config that has checks knows the most. Inside a session that holds
the lock of ``query.one_publisher``.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.domain.codec import to_data
from autotune.domain.config import Config
from autotune.domain.key import Key, identity_of
from autotune.domain.record import Record
from autotune.domain.record_check import RecordCheck
from autotune_db import query, rows, snapshots
from autotune_db.json_columns import from_text, to_text
from autotune_db.tables import RecordRow, SnapshotRow

Finding = tuple[Key, Config, RecordCheck]
"""Of the config of a record, by its key."""


class Noted(NamedTuple):
    """``record_id``: of the record with the checks, ``last_id``: of the last one of its key."""

    key_id: int
    record_id: int
    last_id: int
    is_pinned: bool


def noted(session: Session, before: SnapshotRow, found: Iterable[Finding]) -> list[Noted]:
    """New rows of records of a snapshot, with what was found of them; behind each the one that a
    pin hides, for the day that it is unpinned."""
    by_key: dict[Key, list[Finding]] = {}
    for one in found:
        by_key.setdefault(one[0], []).append(one)
    numbers = query.find_keys(session, by_key)
    served = snapshots.record_ids(session, before, list(numbers.values()))
    records = {identity_of(one.key): one for one in snapshots.by_id(session, served.values())}
    told: dict[int, Record] = {}
    for key, number in numbers.items():
        record = records.get(identity_of(key))
        better = record and with_findings(record, by_key[key])
        if record and better and set(better.checks) != set(record.checks):
            told[number] = better
    added = add_records(session, told)
    pinned = snapshots.pinned(session, before.id) if told else {}
    last = added | _again(session, before, [n for n in told if n in pinned], served)
    return [Noted(n, added[n], last[n], n in pinned) for n in told]


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
    served = snapshots.by_id(session, snapshots.record_ids(session, row, key_ids).values())
    both = zip(served, with_known_checks(session, served), strict=True)
    told = [known for record, known in both if known.checks != record.checks]
    found = [(one.key, one.config, check) for one in told for check in one.checks]
    new = noted(session, row, found)
    note = f"{row.note}, with what is known by now"
    return publish(session, row.record_id, new, now, by=by, note=note) if new else row


def with_known_checks(session: Session, records: Sequence[Record]) -> list[Record]:
    """With what is known of their configs, where they say nothing of that themselves."""
    numbers = query.key_ids(session, [record.key for record in records])
    known = _known(session, set(numbers.values()))
    completed = []
    for record in records:
        config = to_text(to_data(record.config))
        for check in known.get((numbers[record.key], config), ()):
            if record.check(check.toolchain) is None:
                record = record.with_check(check)
        completed.append(record)
    return completed


def add_records(session: Session, records: Mapping[int, Record]) -> dict[int, int]:
    """New rows, by the numbers of their keys; their ids by these."""
    made = {n: RecordRow(**rows.record_values(one), key_id=n) for n, one in records.items()}
    session.add_all(made.values())
    session.flush()
    return {number: row.id for number, row in made.items()}


def _known(
    session: Session, key_ids: Iterable[int]
) -> dict[tuple[int, str], tuple[RecordCheck, ...]]:
    """By key and config."""
    found: dict[tuple[int, str], str] = {}
    wanted = select(RecordRow.key_id, RecordRow.config, RecordRow.evidence)
    for part in query.in_parts(key_ids):
        told = RecordRow.key_id.in_(part), RecordRow.evidence.contains('"checks":')
        oldest_first = wanted.where(*told).order_by(RecordRow.key_id, RecordRow.id)
        for key_id, config, evidence in session.execute(oldest_first):
            found[key_id, config] = evidence
    return {place: rows.checks_from_data(from_text(text)) for place, text in found.items()}


def _again(
    session: Session, before: SnapshotRow, pinned: Sequence[int], served: snapshots.Members
) -> dict[int, int]:
    """New rows of the records that pins hide, by their keys."""
    newest = {n: snapshots.record_id(session, before, n, pinned=False) for n in pinned}
    hidden = {n: number for n, number in newest.items() if number and number != served[n]}
    return add_records(
        session, {n: snapshots.by_id(session, [number])[0] for n, number in hidden.items()}
    )


def with_findings(record: Record, found: Sequence[Finding]) -> Record:
    """With what is news of its config."""
    for key, config, check in found:
        if check.toolchain == key.toolchain or config != record.config:
            continue  # what is published for a toolchain was compiled there
        if _is_news(record.check(check.toolchain), check):
            record = record.with_check(check)
    return record


def _is_news(known: RecordCheck | None, check: RecordCheck) -> bool:
    if known is None:
        return True
    says_more = (known.verdict, known.finding) != (check.verdict, check.finding)
    return says_more and known.checked_at <= check.checked_at
