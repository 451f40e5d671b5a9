"""Verdicts on records under other toolchains and on other chips: the last of each counts."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from autotune.domain.check import Check
from autotune.domain.codec import from_data, to_data
from autotune.domain.key import Key
from autotune_db import audit, query, snapshots
from autotune_db.adapter import Adapter
from autotune_db.json_columns import from_text, to_text
from autotune_db.known_checks import Finding, noted, publish
from autotune_db.rows import AnyRow
from autotune_db.tables import CHECKS


class SqlChecks(Adapter):
    """Implements that part of ``domain.store.Store``."""

    def save_check(self, check: Check) -> None:
        def write(connection: Connection, _: bool) -> None:
            ids = query.key_ids(connection, [check.key, check.target])
            query.lock_keys(connection, ids.values(), shared=True)
            save_check(connection, check, ids[check.key], ids[check.target])

        self._work.write(write)

    def publish_checks(self, found: Sequence[Finding], by: str = "") -> None:
        def write(connection: Connection, _: bool) -> None:
            query.one_publisher(connection)
            before = snapshots.latest(connection)
            new = noted(connection, before, found) if before else []
            if before and new:
                toolchains = dict.fromkeys(check.toolchain for _, _, check in found)
                now, done = self._clock(), f"{len(new)} checked with {audit.some_of(toolchains)}"
                publish(connection, before.record_id, new, now, by=by, note=done)
                audit.note(connection, now, "publish", done)

        self._work.write(write)

    def check(self, key: Key, target: Key) -> Check | None:
        def read(connection: Connection) -> Check | None:
            ids = query.find_key(connection, key), query.find_key(connection, target)
            if None in ids:
                return None
            wanted = select(CHECKS).where(CHECKS.c.key_id == ids[0], CHECKS.c.target_id == ids[1])
            row = connection.execute(wanted).first()
            return None if row is None else _check_from_row(row)

        return self._work.read(read)

    def checks(self, limit: int = 1000) -> Sequence[Check]:
        wanted = select(CHECKS).order_by(CHECKS.c.checked_at.desc(), CHECKS.c.id.desc())
        return self._work.read(
            lambda connection: list(map(_check_from_row, connection.execute(wanted.limit(limit))))
        )


def save_check(connection: Connection, check: Check, key_id: int, target_id: int) -> None:
    """In the place of an earlier one on the same."""
    places = {"key_id": key_id, "target_id": target_id}
    said = {
        "verdict": check.verdict.value,
        "content": to_text(to_data(check)),
        "checked_at": check.checked_at,
    }
    query.upsert(connection, CHECKS, {**places, **said}, list(places), said)


def _check_from_row(row: AnyRow) -> Check:
    return from_data(Check, from_text(row.content))
