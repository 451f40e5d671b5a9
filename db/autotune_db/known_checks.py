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

from autotune.domain.codec import from_data, to_data
from autotune.domain.key import Key
from autotune.domain.problem import Config
from autotune.domain.record import Record, RecordCheck, Standing
from autotune_db import in_force, query, rows, snapshots
from autotune_db.damage import readable
from autotune_db.in_force import Draft
from autotune_db.rows import AnyRow
from autotune_db.tables import RECORDS, from_text, to_text

Finding = tuple[Key, Config, RecordCheck]
"""Of the config of a record, by its key."""


class Noted(NamedTuple):
    """``record_id``: of the record with the checks, ``last_id``: of the last one of its key."""

    key_id: int
    record_id: int
    last_id: int
    is_pinned: bool


def noted(
    connection: Connection, before: AnyRow | Draft, findings: Iterable[Finding], *layers: bool
) -> list[Noted]:
    """New rows of records of a snapshot, with what was found of them; behind each the one that a
    pin hides, for the day that it is unpinned. ``layers``: of those that are not, or are, claimed;
    by default of both."""
    findings, new = list(findings), list[Noted]()
    key_ids = query.find_keys(connection, [key for key, _, _ in findings])
    by_key_id: dict[int, list[Finding]] = {}
    for finding in findings:
        if (key_id := key_ids.get(finding[0])) is not None:
            by_key_id.setdefault(key_id, []).append(finding)
    served = in_force.layers(connection, before, by_key_id, *(layers or (False, True)))
    pins = snapshots.pinned(connection, before.id).items()
    for claimed, numbers in served.items():
        records = in_force.by_id(connection, numbers.values())
        changed = {
            n: record
            for n, number in numbers.items()
            if (known := records.get(number))
            if (record := with_findings(known, by_key_id[n])).checks != known.checks
        }
        added = add_records(connection, changed)
        moved = {n for n, number in pins if n in changed and number == numbers[n]}
        free = in_force.layers(connection, before, moved, claimed, pinned=False)[claimed]
        hidden = {n: number for n, number in free.items() if number != numbers[n]}
        behind = in_force.by_id(connection, hidden.values())
        last = added | add_records(connection, {n: behind[number] for n, number in hidden.items()})
        new += [Noted(n, added[n], last[n], n in moved) for n in changed]
    return new


def publish(
    connection: Connection, top: int, new: Sequence[Noted], now: datetime, *, by: str, note: str
) -> int:
    """The number of a new snapshot with these, and with all records up to ``top``."""
    top = max([top, *(record.last_id for record in new)])
    row = snapshots.publish(connection, top, now, by=by, note=note)
    for record in new:
        if record.is_pinned:
            snapshots.move_pin(connection, record.key_id, record.record_id, row)
    number: int = row.id
    return number


def renew(
    connection: Connection, row: AnyRow, key_ids: Sequence[int] | None, now: datetime, *, by: str
) -> int:
    """The number of the snapshot, which may have older records of some keys; another one where
    more is known of these by now."""
    of = in_force.layers(connection, row, key_ids, False, True)
    numbers = [*of[False].values(), *of[True].values()]
    served = list(in_force.by_id(connection, numbers).values())
    both = zip(served, with_known_checks(connection, served), strict=True)
    changed = [known for record, known in both if known.checks != record.checks]
    findings = [(record.key, record.config, c) for record in changed for c in record.checks]
    new = noted(connection, row, findings)
    number: int = row.id
    note = f"{row.note}, with what is known by now"
    return publish(connection, row.record_id, new, now, by=by, note=note) if new else number


def with_known_checks(
    connection: Connection, records: Sequence[Record], key_ids: Mapping[Key, int] | None = None
) -> list[Record]:
    """With what is known of their configs, where they say nothing of that themselves, and with the
    rule that the record in force carries. ``key_ids``: where the caller has them."""
    if key_ids is None:
        key_ids = query.key_ids(connection, [record.key for record in records])
    known = _known(connection, set(key_ids.values()))
    has_rule = RECORDS.c.evidence.contains('"rule":')
    ruled = in_force.records_of(connection, key_ids.values(), has_rule)
    if not known and not ruled:
        return list(records)
    completed = []
    for record in records:
        key_id, config = key_ids[record.key], to_text(to_data(record.config))
        if record.rule is None and key_id in ruled:
            record = replace(record, rule=ruled[key_id].rule)
        # What was found of a claim says nothing of what is proven.
        for claimed in {False, record.standing is Standing.CLAIMED}:
            for check in known.get((key_id, config, claimed), ()):
                if record.check(check.toolchain) is None:
                    record = record.with_check(check)
        completed.append(record)
    return completed


def add_records(connection: Connection, records: Mapping[int, Record]) -> dict[int, int]:
    """New rows, by the numbers of their keys; their ids by these."""
    if not records:
        return {}
    values = [{**rows.record_values(record), "key_id": n} for n, record in records.items()]
    added = insert(RECORDS).returning(RECORDS.c.id, sort_by_parameter_order=True)
    return dict(zip(records, connection.scalars(added, values), strict=True))


def _known(
    connection: Connection, key_ids: Iterable[int]
) -> dict[tuple[int, str, bool], tuple[RecordCheck, ...]]:
    """By key and config, and whether they were found of a claim."""
    known: dict[tuple[int, str, bool], tuple[RecordCheck, ...]] = {}
    wanted = select(RECORDS).where(RECORDS.c.evidence.contains('"checks":'))
    oldest_first = wanted.order_by(RECORDS.c.key_id, RECORDS.c.claimed, RECORDS.c.id)
    for part in query.in_parts(key_ids):
        of_part = oldest_first.where(RECORDS.c.key_id.in_(part))
        known |= dict(readable(connection, of_part, _checks_of))
    return known


def _checks_of(row: AnyRow) -> tuple[tuple[int, str, bool], tuple[RecordCheck, ...]]:
    place = row.key_id, row.config, row.claimed
    checks = from_text(row.evidence).get("checks", ())
    return place, tuple(from_data(RecordCheck, check) for check in checks)


def with_findings(record: Record, findings: Sequence[Finding]) -> Record:
    """With what is news of its config."""
    for key, config, check in findings:
        if check.toolchain == key.toolchain or config != record.config:
            continue  # what is published for a toolchain was compiled there
        if _is_news(record.check(check.toolchain), check):
            record = record.with_check(check)
    return record


def _is_news(known: RecordCheck | None, check: RecordCheck) -> bool:
    if known is None:
        return True
    says_more = replace(known, checked_at=check.checked_at) != check
    return says_more and known.checked_at <= check.checked_at
