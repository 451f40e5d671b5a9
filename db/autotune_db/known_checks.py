"""What is known of records under other toolchains stays with their configs: whatever is published,
pushed, pinned or rolled back later, nobody is handed what is known not to work.

The newest record of a key and a config that has checks knows the most. Inside a transaction that
holds the lock of ``query.one_publisher``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, insert, select

from autotune.domain.codec import to_data
from autotune.domain.config import Config
from autotune.domain.key import Key, identity_of
from autotune.domain.record import Record
from autotune.domain.record_check import RecordCheck
from autotune_db import query, rows, snapshots
from autotune_db.json_columns import from_text, to_text
from autotune_db.rows import AnyRow
from autotune_db.snapshots import Draft, Members
from autotune_db.tables import RECORDS

Finding = tuple[Key, Config, RecordCheck]
"""Of the config of a record, by its key."""


class Noted(NamedTuple):
    """``record_id``: of the record with the checks, ``last_id``: of the last one of its key."""

    key_id: int
    record_id: int
    last_id: int
    is_pinned: bool


def noted(connection: Connection, before: AnyRow | Draft, found: Iterable[Finding]) -> list[Noted]:
    """New rows of records of a snapshot, with what was found of them; behind each the one that a
    pin hides, for the day that it is unpinned."""
    by_key: dict[Key, list[Finding]] = {}
    for one in found:
        by_key.setdefault(one[0], []).append(one)
    numbers = query.find_keys(connection, by_key)
    served = snapshots.record_ids(connection, before, list(numbers.values()))
    records = {identity_of(one.key): one for one in snapshots.by_id(connection, served.values())}
    told: dict[int, Record] = {}
    for key, number in numbers.items():
        record = records.get(identity_of(key))
        better = record and with_findings(record, by_key[key])
        if record and better and set(better.checks) != set(record.checks):
            told[number] = better
    added = add_records(connection, told)
    pinned = snapshots.pinned(connection, before.id) if told else {}
    last = added | _again(connection, before, [n for n in told if n in pinned], served)
    return [Noted(n, added[n], last[n], n in pinned) for n in told]


def publish(
    connection: Connection, top: int, new: Sequence[Noted], now: datetime, *, by: str, note: str
) -> int:
    """The number of a new snapshot with these, and with all records up to ``top``."""
    top = max([top, *(one.last_id for one in new)])
    row = snapshots.publish(connection, top, now, by=by, note=note)
    for one in new:
        if one.is_pinned:
            snapshots.move_pin(connection, one.key_id, one.record_id, row)
    number: int = row.id
    return number


def renew(
    connection: Connection, row: AnyRow, key_ids: Sequence[int], now: datetime, *, by: str
) -> int:
    """The number of the snapshot, which may have older records of some keys; another one where
    more is known of these by now."""
    served = snapshots.by_id(connection, snapshots.record_ids(connection, row, key_ids).values())
    both = zip(served, with_known_checks(connection, served), strict=True)
    told = [known for record, known in both if known.checks != record.checks]
    found = [(one.key, one.config, check) for one in told for check in one.checks]
    new = noted(connection, row, found)
    number: int = row.id
    note = f"{row.note}, with what is known by now"
    return publish(connection, row.record_id, new, now, by=by, note=note) if new else number


def with_known_checks(connection: Connection, records: Sequence[Record]) -> list[Record]:
    """With what is known of their configs, where they say nothing of that themselves, and with the
    rule that the record in force carries."""
    numbers = query.key_ids(connection, [record.key for record in records])
    known = _known(connection, set(numbers.values()))
    latest = snapshots.latest(connection)
    members = snapshots.record_ids(connection, latest, list(numbers.values())) if latest else {}
    ruled = RECORDS.c.evidence.contains('"rule":')
    carried = {one.key: one.rule for one in snapshots.by_id(connection, members.values(), ruled)}
    completed = []
    for record in records:
        if record.rule is None and carried.get(record.key) is not None:
            record = replace(record, rule=carried[record.key])
        config = to_text(to_data(record.config))
        for check in known.get((numbers[record.key], config), ()):
            if record.check(check.toolchain) is None:
                record = record.with_check(check)
        completed.append(record)
    return completed


def add_records(connection: Connection, records: Mapping[int, Record]) -> dict[int, int]:
    """New rows, by the numbers of their keys; their ids by these."""
    if not records:
        return {}
    values = [{**rows.record_values(one), "key_id": n} for n, one in records.items()]
    added = insert(RECORDS).returning(RECORDS.c.id, sort_by_parameter_order=True)
    return dict(zip(records, connection.scalars(added, values), strict=True))


def _known(
    connection: Connection, key_ids: Iterable[int]
) -> dict[tuple[int, str], tuple[RecordCheck, ...]]:
    """By key and config."""
    found: dict[tuple[int, str], str] = {}
    wanted = select(RECORDS.c.key_id, RECORDS.c.config, RECORDS.c.evidence)
    for part in query.in_parts(key_ids):
        told = RECORDS.c.key_id.in_(part), RECORDS.c.evidence.contains('"checks":')
        oldest_first = wanted.where(*told).order_by(RECORDS.c.key_id, RECORDS.c.id)
        for key_id, config, evidence in connection.execute(oldest_first):
            found[key_id, config] = evidence
    return {place: rows.checks_from_data(from_text(text)) for place, text in found.items()}


def _again(
    connection: Connection,
    before: AnyRow | Draft,
    pinned: Sequence[int],
    served: Members,
) -> dict[int, int]:
    """New rows of the records that pins hide, by their keys."""
    newest = {n: snapshots.record_id(connection, before, n, pinned=False) for n in pinned}
    hidden = {n: number for n, number in newest.items() if number and number != served[n]}
    return add_records(
        connection, {n: snapshots.by_id(connection, [number])[0] for n, number in hidden.items()}
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
