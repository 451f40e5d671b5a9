"""What was asked for and is not published."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import and_, delete, func, or_, select
from sqlalchemy.orm import Session

from autotune.domain.key import Key
from autotune.domain.miss import Miss
from autotune_db import query, rows
from autotune_db.adapter import Adapter
from autotune_db.query import MAX_ID
from autotune_db.tables import (
    CheckRow,
    KernelRow,
    KeyRow,
    MissRow,
    PinRow,
    RecordRow,
    SearchRow,
    SpaceRow,
    TrialRow,
)

MOST_MISSES = 10_000
KEPT = timedelta(days=30)
"""What nobody has asked for since is forgotten."""

_USES = (
    *(row.key_id for row in (TrialRow, RecordRow, SearchRow, SpaceRow, MissRow, PinRow, CheckRow)),
    CheckRow.target_id,
)


class SqlMisses(Adapter):
    """Implements ``MissLog``."""

    def save_misses(
        self, counts: Mapping[tuple[Key, str], int], *, known_only: bool = False
    ) -> None:
        now = self._clock()

        def write(session: Session, _: bool) -> None:
            known = set(session.scalars(select(KernelRow.name))) if known_only else None
            taken = {
                (key, answer): count
                for (key, answer), count in counts.items()
                if known is None or key.kernel in known
            }
            query.count_misses(session, taken, now)
            _forget(session, now)

        self._work.write(write)

    def misses(self, limit: int = 50, after: tuple[int, int] | None = None) -> Sequence[Miss]:
        statement = query.missed().limit(limit)
        if after is not None:
            count, number = after
            rest = and_(MissRow.count == count, MissRow.id > number)
            statement = statement.where(or_(MissRow.count < count, rest))
        return self._work.read(
            lambda s: [rows.miss_from_row(miss, key) for key, miss in s.execute(statement)]
        )

    def miss(self, number: int) -> Miss | None:
        statement = select(KeyRow, MissRow).join(MissRow).where(MissRow.id == number)

        def find(session: Session) -> Miss | None:
            row = session.execute(statement).one_or_none()
            return rows.miss_from_row(row[1], row[0]) if row else None

        return self._work.read(find) if 0 < number <= MAX_ID else None


def _forget(session: Session, now: datetime) -> None:
    """What is old, then, beyond the bound, what was asked for the least."""
    gone = list(session.scalars(select(MissRow.key_id).where(MissRow.last_at < now - KEPT)))
    session.execute(delete(MissRow).where(MissRow.last_at < now - KEPT))
    beyond = (session.scalar(select(func.count()).select_from(MissRow)) or 0) - MOST_MISSES
    if beyond > 0:
        least = select(MissRow).order_by(MissRow.count, MissRow.last_at, MissRow.id).limit(beyond)
        for miss in list(session.scalars(least)):
            gone.append(miss.key_id)
            session.delete(miss)
        session.flush()
    if gone and not query.is_postgresql(session):  # there another writer may just have found one
        for part in query.in_parts(set(gone)):
            unused = (~select(used).where(used == KeyRow.id).exists() for used in _USES)
            session.execute(delete(KeyRow).where(KeyRow.id.in_(part), *unused))
