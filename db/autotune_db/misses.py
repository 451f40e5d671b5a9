"""What was asked for and is not published."""

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.domain.key import Key
from autotune.domain.miss import Miss
from autotune_db import query, rows
from autotune_db.adapter import Adapter
from autotune_db.query import MAX_ID
from autotune_db.tables import KeyRow, MissRow


class SqlMisses(Adapter):
    """Implements ``MissLog``."""

    def save_misses(self, counts: Mapping[tuple[Key, str], int]) -> None:
        now = self._clock()
        in_order = sorted(counts.items(), key=lambda item: str(item[0]))  # else two could deadlock

        def write(session: Session, _: bool) -> None:
            for (key, answer), count in in_order:
                query.count_miss(session, key, answer, count, now)

        self._work.write(write)

    def misses(self, limit: int = 50) -> Sequence[Miss]:
        statement = query.missed().limit(limit)
        return self._work.read(
            lambda s: [rows.miss_from_row(miss, key) for key, miss in s.execute(statement)]
        )

    def miss(self, number: int) -> Miss | None:
        statement = select(KeyRow, MissRow).join(MissRow).where(MissRow.id == number)

        def find(session: Session) -> Miss | None:
            row = session.execute(statement).one_or_none()
            return rows.miss_from_row(row[1], row[0]) if row else None

        return self._work.read(find) if 0 < number <= MAX_ID else None
