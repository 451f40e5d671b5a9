"""How far searches are: a row for each key that was searched, overwritten."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.domain.browsing import Told
from autotune.domain.job import Progress
from autotune.domain.key import Key
from autotune_db import query
from autotune_db.canonical import from_text, to_text
from autotune_db.tables import SearchRow
from autotune_db.transaction import Transactions


class SqlSearches:
    """Implements ``autotune.ports.Searches``."""

    def __init__(self, work: Transactions, clock: Callable[[], datetime]) -> None:
        self._work = work
        self._clock = clock

    def tell(self, key: Key, space: str, progress: Progress, *, over: bool) -> None:
        said = {
            "space": space,
            "progress": to_text(asdict(progress)),
            "over": over,
            "heard_at": self._clock(),
        }

        def write(session: Session, _: bool) -> None:
            values = {"key_id": query.key_id(session, key), **said}
            query.upsert(session, SearchRow, values, ["key_id"], said)

        self._work.write(write)

    def told(self, key_id: int) -> Told | None:
        wanted = select(SearchRow).where(SearchRow.key_id == key_id)

        return self._work.read(lambda session: _told(session.scalar(wanted)))


def _told(row: SearchRow | None) -> Told | None:
    if row is None:
        return None
    return Told(
        space=row.space,
        progress=Progress(**from_text(row.progress)),
        over=row.over,
        heard_at=row.heard_at,
    )
