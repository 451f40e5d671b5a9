"""What was asked for and is not published."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter

from sqlalchemy import Connection, and_, delete, func, or_, select

from autotune.domain.browsing import Miss
from autotune.domain.key import Key
from autotune_db import query, rows
from autotune_db.query import MAX_ID, Query
from autotune_db.tables import KERNELS, KEYS, METADATA, MISSES
from autotune_db.transaction import Adapter, writes

MOST_MISSES = 10_000
KEPT = timedelta(days=30)
"""What nobody has asked for since is forgotten."""

MISS_ORDER = {
    "kernel": KEYS.c.kernel,
    "chip": KEYS.c.chip,
    "count": MISSES.c["count"],
    "last": MISSES.c.last_at,
}
_USES = [
    reference.parent
    for table in METADATA.sorted_tables
    for reference in table.foreign_keys
    if reference.references(KEYS)
]


class SqlMisses(Adapter):
    """What was asked for and is not published."""

    @writes
    def save_misses(
        self,
        connection: Connection,
        counts: Mapping[tuple[Key, str], int],
        *,
        known_only: bool = False,
    ) -> None:
        now = self._clock()
        if known_only:
            known = set(connection.scalars(select(KERNELS.c.name)))
            counts = {asked: n for asked, n in counts.items() if asked[0].kernel in known}
        _count(connection, counts, now)
        _forget(connection, now)

    def misses(self, limit: int = 50, after: tuple[int, int] | None = None) -> Sequence[Miss]:
        """Keys that were asked for and still have no record, the most wanted first; ``after``:
        those behind the one with this count and number."""
        statement = missed().limit(limit)
        if after is not None:
            count, number = after
            rest = and_(MISSES.c["count"] == count, MISSES.c.id > number)
            statement = statement.where(or_(MISSES.c["count"] < count, rest))
        return self._rows(statement, rows.miss_from_row)

    def miss(self, number: int) -> Miss | None:
        statement = query.with_keys(MISSES).where(MISSES.c.id == number)
        return self._first(statement, rows.miss_from_row) if 0 < number <= MAX_ID else None


def missed(order: str = "") -> Query:
    """Keys without a record, the most wanted first. ``order``: a name of ``MISS_ORDER``."""
    keys = query.with_keys(MISSES).where(~query.has_record(MISSES))
    return query.ordered(keys, order, MISS_ORDER, MISSES.c["count"].desc(), MISSES.c.id)


def _count(connection: Connection, counts: Mapping[tuple[Key, str], int], now: datetime) -> None:
    """Few statements for all, so that nobody waits for the database long, and one for each count,
    so that hosts that ask at once are all counted."""
    ids = query.key_ids(connection, [key for key, _ in counts])
    values = [
        {"key_id": ids[key], "answer": answer, "count": n, "first_at": now, "last_at": now}
        for (key, answer), n in counts.items()
    ]
    if values:
        new = query.dialect(connection).insert(MISSES)
        again = {"count": MISSES.c["count"] + new.excluded.count, "last_at": new.excluded.last_at}
        counted = new.on_conflict_do_update(index_elements=["key_id", "answer"], set_=again)
        values.sort(key=itemgetter("key_id", "answer"))  # else two could deadlock
        connection.execute(counted, values)


def _forget(connection: Connection, now: datetime) -> None:
    """What is old, then, beyond the bound, what was asked for the least."""
    old = delete(MISSES).where(MISSES.c.last_at < now - KEPT)
    gone = set(connection.scalars(old.returning(MISSES.c.key_id)))
    beyond = (connection.scalar(select(func.count()).select_from(MISSES)) or 0) - MOST_MISSES
    if beyond > 0:
        least = select(MISSES.c.id).order_by(MISSES.c["count"], MISSES.c.last_at, MISSES.c.id)
        forgotten = delete(MISSES).where(MISSES.c.id.in_(least.limit(beyond)))
        gone |= set(connection.scalars(forgotten.returning(MISSES.c.key_id)))
    if gone and not query.is_postgresql(connection):  # there another writer may just have found one
        for part in query.in_parts(gone):
            unused = (~select(used).where(used == KEYS.c.id).exists() for used in _USES)
            connection.execute(delete(KEYS).where(KEYS.c.id.in_(part), *unused))
