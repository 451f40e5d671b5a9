"""Verdicts on records under other toolchains and on other chips: the last of each counts. They stay
with their configs: whatever is published, pushed, pinned or rolled back later, nobody is handed
what is known not to work. The newest record of a key and a config that has checks knows the most.
What takes over such checks is inside a transaction with the lock of ``query.one_publisher``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, case, func, insert, select

from autotune.domain.browsing import CheckCount, CheckFilter, NumberedCheck
from autotune.domain.codec import from_data, to_data
from autotune.domain.key import Chip, Key
from autotune.domain.problem import Config
from autotune.domain.record import Check, CheckVerdict, Record, RecordCheck, Standing
from autotune_db import audit, query, rows, snapshots
from autotune_db.rows import AnyRow
from autotune_db.snapshots import Draft
from autotune_db.tables import CHECKS, KEYS, RECORDS, from_text, to_text
from autotune_db.transaction import Adapter, readable, reads, writes

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
    served = snapshots.layers(connection, before, by_key_id, *(layers or (False, True)))
    pins = snapshots.pinned(connection, before.id).items()
    for claimed, numbers in served.items():
        records = snapshots.by_id(connection, numbers.values())
        changed = {
            n: record
            for n, number in numbers.items()
            if (known := records.get(number))
            if (record := with_findings(known, by_key_id[n])).checks != known.checks
        }
        added = add_records(connection, changed)
        moved = {n for n, number in pins if n in changed and number == numbers[n]}
        free = snapshots.layers(connection, before, moved, claimed, pinned=False)[claimed]
        hidden = {n: number for n, number in free.items() if number != numbers[n]}
        behind = snapshots.by_id(connection, hidden.values())
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
    of = snapshots.layers(connection, row, key_ids, False, True)
    numbers = [*of[False].values(), *of[True].values()]
    served = list(snapshots.by_id(connection, numbers).values())
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
    ruled = snapshots.records_of(connection, key_ids.values(), has_rule)
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


_Of, _Target = KEYS.alias(), KEYS.alias()
"""The keys of the record and of what it was checked against."""
_RANK = case(
    {verdict.value: rank for rank, verdict in enumerate(CheckVerdict)}, value=CHECKS.c.verdict
)
CHECK_ORDER = {
    "verdict": _RANK,
    "kernel": _Target.c.kernel,
    "chip": _Target.c.chip,
    "checked": CHECKS.c.checked_at,
    "costs": CHECKS.c.costs_us,
}


class SqlChecks(Adapter):
    """What the engine keeps and asks of checks."""

    @writes
    def save_check(self, connection: Connection, check: Check) -> None:
        ids = query.key_ids(connection, [check.key, check.target])
        query.lock_keys(connection, ids.values(), shared=True)
        save_check(connection, check, ids[check.key], ids[check.target])

    @writes
    def publish_checks(
        self, connection: Connection, findings: Sequence[Finding], by: str = ""
    ) -> None:
        query.one_publisher(connection)
        before = snapshots.latest(connection)
        new = noted(connection, before, findings) if before else []
        if before and new:
            toolchains = dict.fromkeys(check.toolchain for _, _, check in findings)
            now, done = self._clock(), f"{len(new)} checked with {audit.some_of(toolchains)}"
            publish(connection, before.record_id, new, now, by=by, note=done)
            audit.note(connection, now, "publish", done)

    @reads
    def check(self, connection: Connection, key: Key, target: Key) -> Check | None:
        ids = query.find_key(connection, key), query.find_key(connection, target)
        wanted = select(CHECKS).where(CHECKS.c.key_id == ids[0], CHECKS.c.target_id == ids[1])
        return None if None in ids else next(readable(connection, wanted, check_from_row), None)

    def checks(self, limit: int = 1000) -> Sequence[Check]:
        newest = select(CHECKS).order_by(CHECKS.c.checked_at.desc(), CHECKS.c.id.desc())
        return self._rows(newest.limit(limit), check_from_row)


class SqlCheckPages(Adapter):
    """Lists and counts: for the page of an upgrade, and for those who read them over HTTP."""

    def check_counts(self) -> Sequence[CheckCount]:
        columns = (
            *(_Target.c.kernel, _Of.c.chip.label("made_on"), _Target.c.chip),
            *(*query.versions(_Of), *query.versions(_Target), CHECKS.c.verdict),
        )
        return self._rows(_joined(select(*columns, func.count())).group_by(*columns), _count)

    def checks(self, only: CheckFilter, before: int | None, limit: int) -> Sequence[NumberedCheck]:
        wanted = _joined(select(CHECKS)).where(*_conditions(only))
        return self._rows(query.page(wanted, CHECKS.c.id, before, limit), _numbered)

    def worst_checks(
        self, only: CheckFilter, offset: int, limit: int, order: str = ""
    ) -> Sequence[NumberedCheck]:
        """``order``: a name of ``CHECK_ORDER``; those alike by what they cost."""
        usual = order, CHECK_ORDER, _RANK, CHECKS.c.costs_us.desc(), CHECKS.c.id.desc()
        ids = query.ordered(_joined(select(CHECKS.c.id)).where(*_conditions(only)), *usual)
        page = CHECKS.c.id.in_(ids.offset(offset).limit(limit).correlate(None))  # they are small
        return self._rows(query.ordered(_joined(select(CHECKS)).where(page), *usual), _numbered)

    def failures(self, key_ids: Sequence[int]) -> Sequence[NumberedCheck]:
        """What does not work elsewhere, of the records of these keys."""
        bad = [verdict.value for verdict in CheckVerdict if not verdict.is_usable]
        of_keys = CHECKS.c.key_id.in_(key_ids), CHECKS.c.verdict.in_(bad)
        return self._rows(select(CHECKS).where(*of_keys), _numbered)


def save_check(connection: Connection, check: Check, key_id: int, target_id: int) -> None:
    """In the place of an earlier one on the same."""
    values = {
        "verdict": check.verdict.value,
        "content": to_text(to_data(check)),
        "checked_at": check.checked_at,
        "costs_us": check.costs_us,
    }
    query.upsert(connection, CHECKS, {"key_id": key_id, "target_id": target_id}, values)


def _joined(statement: Any) -> Any:
    """Each check has both keys: an outer join lets the database leave out what nothing reads."""
    return (
        statement.select_from(CHECKS)
        .outerjoin(_Of, _Of.c.id == CHECKS.c.key_id)
        .outerjoin(_Target, _Target.c.id == CHECKS.c.target_id)
    )


def _conditions(only: CheckFilter) -> list[ColumnElement[bool]]:
    wanted: dict[ColumnElement[str], object] = {
        _Target.c.kernel: only.kernel,
        _Target.c.chip: only.chip,
        CHECKS.c.verdict: only.verdict,
    }
    for key, toolchain in ((_Of, only.made_with), (_Target, only.toolchain)):
        if toolchain is not None:
            wanted |= {key.c[n]: value for n, value in rows.toolchain_values(toolchain).items()}
    return [column == str(value) for column, value in wanted.items() if value is not None]


def _count(row: AnyRow) -> CheckCount:
    kernel, made_on, chip, *versions, verdict, count = row
    return CheckCount(
        kernel=kernel,
        made_on=Chip(made_on),
        chip=Chip(chip),
        made_with=rows.toolchain_from_columns(*versions[:4]),
        toolchain=rows.toolchain_from_columns(*versions[4:]),
        verdict=CheckVerdict(verdict),
        count=count,
    )


def check_from_row(row: AnyRow) -> Check:
    return from_data(Check, from_text(row.content))


def _numbered(row: AnyRow) -> NumberedCheck:
    return NumberedCheck(number=row.id, key_id=row.key_id, check=check_from_row(row))
