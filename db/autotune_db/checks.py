"""Verdicts on records under other toolchains and on other chips: the last of each counts."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.domain.check import Check
from autotune.domain.codec import from_data, to_data
from autotune.domain.key import Key
from autotune_db import audit, query, snapshots
from autotune_db.adapter import Adapter
from autotune_db.json_columns import from_text, to_text
from autotune_db.known_checks import Finding, noted, publish
from autotune_db.tables import CheckRow


class SqlChecks(Adapter):
    """Implements ``autotune.ports.checks.CheckStore``."""

    def save_check(self, check: Check) -> None:
        def write(session: Session, _: bool) -> None:
            ids = query.key_id(session, check.key), query.key_id(session, check.target)
            save_check(session, check, *ids)

        self._work.write(write)

    def publish_checks(self, found: Sequence[Finding], by: str = "") -> None:
        def write(session: Session, _: bool) -> None:
            query.one_publisher(session)
            before = snapshots.latest(session)
            new = noted(session, before, found) if before else []
            if before and new:
                toolchains = dict.fromkeys(check.toolchain for _, _, check in found)
                now, done = self._clock(), f"{len(new)} checked with {audit.some_of(toolchains)}"
                publish(session, before.record_id, new, now, by=by, note=done)
                audit.note(session, now, "publish", done)

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


def save_check(session: Session, check: Check, key_id: int, target_id: int) -> None:
    """In the place of an earlier one on the same."""
    places = {"key_id": key_id, "target_id": target_id}
    said = {
        "verdict": check.verdict.value,
        "content": to_text(to_data(check)),
        "checked_at": check.checked_at,
    }
    query.upsert(session, CheckRow, {**places, **said}, list(places), said)


def _check_from_row(row: CheckRow) -> Check:
    return from_data(Check, from_text(row.content))
