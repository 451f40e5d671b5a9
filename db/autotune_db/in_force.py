"""Which record of a key is in force: in a snapshot the newest, under its pins and what it rests on;
of two that are pushed, the one that is not superseded. Inside a transaction.

Where nothing else is said, sets are of proven records; with ``claimed`` they have also those of
keys of which nothing is proven.
"""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from autotune.domain.record import Method, Record
from autotune_db import query
from autotune_db.damage import readable
from autotune_db.rows import AnyRow
from autotune_db.tables import PINS, RECORDS, SNAPSHOTS

Members = dict[int, int]
"""The id of the record by the id of each key."""


def latest(connection: Connection) -> AnyRow | None:
    newest = select(func.max(SNAPSHOTS.c.id)).scalar_subquery()
    return connection.execute(select(SNAPSHOTS).where(SNAPSHOTS.c.id == newest)).first()


class Draft(NamedTuple):
    """As the row of a snapshot that is not written."""

    id: int
    record_id: int
    base_id: int | None
    floor: int


def draft(before: AnyRow | None, top: int | None) -> Draft | None:
    """What the next snapshot has, up to a new record where there is one."""
    if before is None:
        return None if top is None else Draft(id=0, record_id=top, base_id=None, floor=0)
    most = before.record_id if top is None else top
    return Draft(id=before.id, record_id=most, base_id=before.base_id, floor=before.floor)


def members(
    connection: Connection,
    row: AnyRow | Draft,
    key_ids: Iterable[int] | None = None,
    *,
    claimed: bool = False,
) -> Members:
    """What is in a snapshot, or what some keys have in it."""
    of = layers(connection, row, key_ids, *((False, True) if claimed else (False,)))
    return of[True] | of[False]


def layers(
    connection: Connection,
    row: AnyRow | Draft,
    key_ids: Iterable[int] | None,
    *claimed: bool,
    pinned: bool = True,
) -> dict[bool, Members]:
    """The same of records that are all claimed, and of those that are all proven: those of its
    bases, the newest records over them, the pins over these unless it is as if it had none.
    Without what was refused before it."""
    wanted = None if key_ids is None else set(key_ids)
    of: dict[bool, Members] = {True: {}, False: {}}
    is_left = or_(RECORDS.c.until_id.is_(None), RECORDS.c.until_id > row.id)
    for layer in reversed([row, *_bases(connection, row)]):
        newest = select(RECORDS.c.key_id, RECORDS.c.claimed, func.max(RECORDS.c.id))
        newest = newest.where(RECORDS.c.id > layer.floor, RECORDS.c.id <= layer.record_id)
        newest = newest.group_by(RECORDS.c.key_id, RECORDS.c.claimed)
        pins = select(PINS.c.key_id, RECORDS.c.claimed, PINS.c.record_id).order_by(PINS.c.id)
        pins = pins.join(PINS, RECORDS.c.id == PINS.c.record_id).where(pin_in_force(layer.id))
        statements = (newest, RECORDS.c.key_id), (pins, PINS.c.key_id)
        for statement, key_id in statements if pinned or layer is not row else statements[:1]:
            statement = statement.where(RECORDS.c.claimed.in_(claimed), is_left)
            parts = [None] if wanted is None else query.in_parts(wanted)
            for part in parts:
                only = () if part is None else (key_id.in_(part),)
                for number, is_claimed, record in connection.execute(statement.where(*only)):
                    of[is_claimed][number] = record
    return of


def _bases(connection: Connection, row: AnyRow | Draft) -> Iterator[AnyRow]:
    """What a snapshot rests on, the newest first: however often it was rolled back, and where a
    damaged row says that it rests on a newer one, none of those."""
    while (base := query.get(connection, SNAPSHOTS, row.base_id)) and base.id < row.id:
        yield base
        row = base


def records_of(
    connection: Connection,
    key_ids: Iterable[int],
    *only: ColumnElement[bool],
    claimed: bool = False,
) -> dict[int, Record]:
    """The records of some keys in the newest snapshot, by the numbers of these."""
    row = latest(connection)
    ids = members(connection, row, key_ids, claimed=claimed) if row else {}
    records = by_id(connection, ids.values(), *only)
    return {key_id: records[n] for key_id, n in ids.items() if n in records}


def pin_in_force(number: int) -> ColumnElement[bool]:
    """Of a pin, in the snapshot with this number."""
    return and_(PINS.c.from_id <= number, or_(PINS.c.until_id.is_(None), PINS.c.until_id > number))


def by_id(
    connection: Connection, ids: Iterable[int], *only: ColumnElement[bool]
) -> dict[int, Record]:
    """Records by their numbers, newest first."""
    parts = reversed(list(query.in_parts(ids)))
    return {n: record for part in parts for n, record in _read(connection, part, *only)}


def _read(connection: Connection, ids: Any, *only: ColumnElement[bool]) -> list[tuple[int, Record]]:
    """Sorted here: a database would copy the rows for it."""
    wanted = query.with_keys(RECORDS).where(RECORDS.c.id.in_(ids), *only)
    return sorted(
        readable(connection, wanted, query.numbered_record), key=itemgetter(0), reverse=True
    )


def is_superseded(published: Record | None, record: Record) -> bool:
    """Whether the ``published`` record of the key is newer, faster by the same kind of evidence, or
    measured where this one is only estimated.

    What is there already does not lose: it may be pushed again.
    """
    if published is None:
        return False
    faster = _same_kind(record, published) and published.time_us < record.time_us
    firmer = published.method == Method.MEASURED and record.method != Method.MEASURED
    return published.created_at > record.created_at or faster or firmer


def _same_kind(record: Record, other: Record) -> bool:
    """Whether their times may be compared: by the same model, or measured in the same way."""
    if record.method != other.method:
        return False
    if record.method == Method.MEASURED and record.measurement and other.measurement:
        return record.measurement.method == other.measurement.method
    return record.estimate.model == other.estimate.model
