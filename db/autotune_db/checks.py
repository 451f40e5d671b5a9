"""Verdicts on records under other toolchains and on other chips: the last of each counts."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.domain.check import Check
from autotune.domain.codec import from_data, to_data
from autotune.domain.key import Key
from autotune_db import query
from autotune_db.adapter import Adapter
from autotune_db.json_columns import from_text, to_text
from autotune_db.tables import CheckRow


class SqlChecks(Adapter):
    """Implements ``autotune.ports.checks.CheckStore``."""

    def save_check(self, check: Check) -> None:
        said = {
            "verdict": check.verdict.value,
            "content": to_text(to_data(check)),
            "checked_at": check.checked_at,
        }

        def write(session: Session, _: bool) -> None:
            places = {
                "key_id": query.key_id(session, check.key),
                "target_id": query.key_id(session, check.target),
            }
            query.upsert(session, CheckRow, {**places, **said}, list(places), said)

        self._work.write(write)

    def check(self, key: Key, target: Key) -> Check | None:
        def read(session: Session) -> Check | None:
            ids = query.find_key(session, key), query.find_key(session, target)
            if None in ids:
                return None
            wanted = select(CheckRow).where(CheckRow.key_id == ids[0], CheckRow.target_id == ids[1])
            row = session.scalar(wanted)
            return None if row is None else _check_from_row(row)

        return self._work.read(read)

    def checks(self, limit: int = 1000) -> Sequence[Check]:
        wanted = select(CheckRow).order_by(CheckRow.checked_at.desc(), CheckRow.id.desc())
        return self._work.read(
            lambda session: list(map(_check_from_row, session.scalars(wanted.limit(limit))))
        )


def _check_from_row(row: CheckRow) -> Check:
    return from_data(Check, from_text(row.content))
