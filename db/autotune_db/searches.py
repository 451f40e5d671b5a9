"""How far searches are: a row for each key that was searched, overwritten."""

from dataclasses import asdict

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.domain.browsing import SearchStatus
from autotune.domain.job import Progress
from autotune.domain.key import Key
from autotune_db import query
from autotune_db.adapter import Adapter
from autotune_db.json_columns import from_text, to_text
from autotune_db.tables import SearchRow


class SqlSearches(Adapter):
    """Implements ``autotune.ports.SearchStatuses``."""

    def report(self, key: Key, space: str, progress: Progress, *, over: bool) -> None:
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

    def progress(self, key: Key) -> Progress:
        def read(session: Session) -> Progress:
            wanted = select(SearchRow).where(SearchRow.key_id == query.find_key(session, key))
            row = session.scalar(wanted)
            return status_from_row(row).progress if row else Progress()

        return self._work.read(read)

    def status(self, key_id: int) -> SearchStatus | None:
        wanted = select(SearchRow).where(SearchRow.key_id == key_id)

        def read(session: Session) -> SearchStatus | None:
            row = session.scalar(wanted)
            return None if row is None else status_from_row(row)

        return self._work.read(read)


def status_from_row(row: SearchRow) -> SearchStatus:
    return SearchStatus(
        space=row.space,
        progress=Progress(**from_text(row.progress)),
        over=row.over,
        heard_at=row.heard_at,
    )
