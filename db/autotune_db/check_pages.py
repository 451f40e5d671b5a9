"""Checks as lists and counts: for the page of an upgrade, and for those who read them over HTTP."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, case, func, select

from autotune.domain.browsing import CheckCount, CheckFilter, NumberedCheck
from autotune.domain.check import Check
from autotune.domain.chip import Chip
from autotune.domain.codec import from_data
from autotune.domain.record_check import CheckVerdict
from autotune.domain.toolchain import Toolchain
from autotune_db import query
from autotune_db.adapter import Adapter
from autotune_db.json_columns import from_text
from autotune_db.rows import AnyRow
from autotune_db.tables import CHECKS, KEYS

_Of, _Target = KEYS.alias(), KEYS.alias()
"""The keys of the record and of what it was checked against."""


class SqlCheckPages(Adapter):
    """What the page of an upgrade asks."""

    def check_counts(self) -> Sequence[CheckCount]:
        columns = (_Target.c.kernel, _Target.c.chip, *_versions(_Of), *_versions(_Target))
        wanted = select(*columns, CHECKS.c.verdict, func.count())
        counted = _joined(wanted).group_by(*columns, CHECKS.c.verdict)
        return self._work.read(lambda s: [_count(*row) for row in s.execute(counted)])

    def checks(self, only: CheckFilter, before: int | None, limit: int) -> Sequence[NumberedCheck]:
        wanted = _joined(select(CHECKS)).where(*_conditions(only))
        page = query.page(wanted, CHECKS.c.id, before, limit)
        return self._work.read(lambda connection: list(map(_numbered, connection.execute(page))))

    def worst_checks(self, only: CheckFilter, offset: int, limit: int) -> Sequence[NumberedCheck]:
        rank = case(
            {one.value: place for place, one in enumerate(CheckVerdict)}, value=CHECKS.c.verdict
        )
        wanted = _joined(select(CHECKS)).where(*_conditions(only))
        page = wanted.order_by(rank, CHECKS.c.id.desc()).offset(offset).limit(limit)
        return self._work.read(lambda connection: list(map(_numbered, connection.execute(page))))


def _joined(statement: Any) -> Any:
    return (
        statement.select_from(CHECKS)
        .join(_Of, _Of.c.id == CHECKS.c.key_id)
        .join(_Target, _Target.c.id == CHECKS.c.target_id)
    )


def _versions(key: Any) -> tuple[Any, ...]:
    return key.c.jax, key.c.jaxlib, key.c.libtpu


def _conditions(only: CheckFilter) -> list[ColumnElement[bool]]:
    wanted = {
        _Target.c.kernel: only.kernel,
        _Target.c.chip: only.chip,
        CHECKS.c.verdict: only.verdict,
    }
    for key, toolchain in ((_Of, only.made_with), (_Target, only.toolchain)):
        if toolchain is not None:
            versions = (toolchain.jax, toolchain.jaxlib, toolchain.libtpu)
            wanted |= dict(zip(_versions(key), versions, strict=True))
    return [column == str(value) for column, value in wanted.items() if value is not None]


def _count(kernel: str, chip: str, *rest: Any) -> CheckCount:
    *versions, verdict, count = rest
    made_with, toolchain = (
        Toolchain(jax=jax, jaxlib=jaxlib, libtpu=libtpu)
        for jax, jaxlib, libtpu in (versions[:3], versions[3:])
    )
    return CheckCount(
        kernel=kernel,
        chip=Chip(chip),
        made_with=made_with,
        toolchain=toolchain,
        verdict=CheckVerdict(verdict),
        count=count,
    )


def _numbered(row: AnyRow) -> NumberedCheck:
    check = from_data(Check, from_text(row.content))
    return NumberedCheck(number=row.id, key_id=row.key_id, check=check)
