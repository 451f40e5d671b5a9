"""What was asked for and is not published."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, and_, delete, func, or_, select

from autotune.domain.key import Key
from autotune.domain.miss import Miss
from autotune_db import query, rows
from autotune_db.adapter import Adapter
from autotune_db.query import MAX_ID
from autotune_db.tables import (
    CHECKS,
    KERNELS,
    KEYS,
    MISSES,
    PINS,
    RECORDS,
    SEARCHES,
    SPACES,
    TRIALS,
)

MOST_MISSES = 10_000
KEPT = timedelta(days=30)
"""What nobody has asked for since is forgotten."""

_USES = (
    *(table.c.key_id for table in (TRIALS, RECORDS, SEARCHES, SPACES, MISSES, PINS, CHECKS)),
    CHECKS.c.target_id,
)


class SqlMisses(Adapter):
    """What was asked for and is not published."""

    def save_misses(
        self, counts: Mapping[tuple[Key, str], int], *, known_only: bool = False
    ) -> None:
        now = self._clock()

        def write(connection: Connection, _: bool) -> None:
            known = set(connection.scalars(select(KERNELS.c.name))) if known_only else None
            taken = {
                (key, answer): count
                for (key, answer), count in counts.items()
                if known is None or key.kernel in known
            }
            query.count_misses(connection, taken, now)
            _forget(connection, now)

        self._work.write(write)

    def misses(self, limit: int = 50, after: tuple[int, int] | None = None) -> Sequence[Miss]:
        statement = query.missed().limit(limit)
        if after is not None:
            count, number = after
            rest = and_(MISSES.c["count"] == count, MISSES.c.id > number)
            statement = statement.where(or_(MISSES.c["count"] < count, rest))
        return self._work.read(lambda s: list(map(rows.miss_from_row, s.execute(statement))))

    def miss(self, number: int) -> Miss | None:
        statement = query.with_keys(MISSES).where(MISSES.c.id == number)

        def find(connection: Connection) -> Miss | None:
            row = connection.execute(statement).one_or_none()
            return rows.miss_from_row(row) if row else None

        return self._work.read(find) if 0 < number <= MAX_ID else None


def _forget(connection: Connection, now: datetime) -> None:
    """What is old, then, beyond the bound, what was asked for the least."""
    gone = list(connection.scalars(select(MISSES.c.key_id).where(MISSES.c.last_at < now - KEPT)))
    connection.execute(delete(MISSES).where(MISSES.c.last_at < now - KEPT))
    beyond = (connection.scalar(select(func.count()).select_from(MISSES)) or 0) - MOST_MISSES
    if beyond > 0:
        least = select(MISSES.c.id).order_by(MISSES.c["count"], MISSES.c.last_at, MISSES.c.id)
        forgotten = delete(MISSES).where(MISSES.c.id.in_(least.limit(beyond)))
        gone += connection.scalars(forgotten.returning(MISSES.c.key_id))
    if gone and not query.is_postgresql(connection):  # there another writer may just have found one
        for part in query.in_parts(set(gone)):
            unused = (~select(used).where(used == KEYS.c.id).exists() for used in _USES)
            connection.execute(delete(KEYS).where(KEYS.c.id.in_(part), *unused))
