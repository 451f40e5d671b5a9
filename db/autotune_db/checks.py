"""Verdicts on records under other toolchains and on other chips: the last of each counts."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.domain.check import Check
from autotune.domain.codec import from_data, to_data
from autotune.domain.config import Config
from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.domain.record_check import CheckVerdict, RecordCheck
from autotune_db import audit, query, rows, snapshots
from autotune_db.adapter import Adapter
from autotune_db.json_columns import from_text, to_text
from autotune_db.records import add_record
from autotune_db.tables import CheckRow, RecordRow, SnapshotRow


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

    def publish_checks(self, found: Sequence[tuple[Key, Config, RecordCheck]]) -> None:
        def write(session: Session, _: bool) -> None:
            query.one_publisher(session)
            before = snapshots.latest(session)
            new = [
                noted
                for key, config, check in found
                if before and (noted := _noted(session, before, key, config, check))
            ]
            if not new:
                return
            now, done = self._clock(), f"{len(new)} checked with {found[0][2].toolchain}"
            last = max(one.last_id for one in new)
            row = snapshots.publish(session, last, now, by="", note=done)
            for one in new:
                if one.is_pinned:
                    snapshots.move_pin(session, one.key_id, one.record_id, row)
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


class _Noted(NamedTuple):
    """``record_id``: of the record with the check, ``last_id``: of the last one of its key."""

    key_id: int
    record_id: int
    last_id: int
    is_pinned: bool


def _noted(
    session: Session, before: SnapshotRow, key: Key, config: Config, check: RecordCheck
) -> _Noted | None:
    """A new row of the published record; behind it the one that a pin hides, for the day that it
    is unpinned."""
    key_id = query.find_key(session, key)
    served = key_id and snapshots.record_id(session, before, key_id)
    newest = key_id and snapshots.record_id(session, before, key_id, pinned=False)
    if not key_id or not served:
        return None
    record = _record(session, served, key)
    known = record.check(check.toolchain)
    if record.config != config or (known is not None and _says(known) == _says(check)):
        return None
    added = add_record(session, record.with_check(check))
    hidden = newest if newest and newest != served else None
    last = add_record(session, _record(session, hidden, key)) if hidden else added
    pinned = snapshots.is_pinned(session, before, key_id)
    return _Noted(key_id, added, last, pinned)


def _says(check: RecordCheck) -> tuple[CheckVerdict, str]:
    return check.verdict, check.finding


def _record(session: Session, number: int, key: Key) -> Record:
    row = session.get(RecordRow, number)
    assert row is not None
    return rows.record_from_row(row, key)


def _check_from_row(row: CheckRow) -> Check:
    return from_data(Check, from_text(row.content))
