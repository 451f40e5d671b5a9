"""Verdicts on records under other toolchains and on other chips: the last of each counts."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, select

from autotune.domain.browsing import CheckCount, CheckFilter, NumberedCheck
from autotune.domain.codec import from_data, to_data
from autotune.domain.key import Chip, Key
from autotune.domain.record import Check, CheckVerdict
from autotune_db import audit, in_force, query, rows
from autotune_db.damage import readable
from autotune_db.known_checks import Finding, noted, publish
from autotune_db.rows import AnyRow
from autotune_db.tables import CHECKS, KEYS, from_text, to_text
from autotune_db.transaction import Adapter, reads, writes

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
        before = in_force.latest(connection)
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
