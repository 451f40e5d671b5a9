"""How far searches are: a row for each key that was searched, overwritten."""

from dataclasses import asdict

from sqlalchemy import Connection, select

from autotune.domain.browsing import SearchStatus
from autotune.domain.job import Progress
from autotune.domain.key import Key
from autotune_db import query, rows
from autotune_db.tables import SEARCHES, to_text
from autotune_db.transaction import Adapter, writes


class SqlSearches(Adapter):
    """How far searches are, for those who watch."""

    @writes
    def report(
        self, connection: Connection, key: Key, space: str, progress: Progress, *, over: bool
    ) -> None:
        values = {
            "space": space,
            "progress": to_text(asdict(progress)),
            "over": over,
            "heard_at": self._clock(),
        }
        query.upsert(connection, SEARCHES, {"key_id": query.key_id(connection, key)}, values)

    def progress(self, key: Key) -> Progress:
        wanted = select(SEARCHES).where(SEARCHES.c.key_id == query.id_of(key))
        status = self._first(wanted, rows.status_from_row)
        return status.progress if status else Progress()

    def status(self, key_id: int) -> SearchStatus | None:
        return self._first(
            select(SEARCHES).where(SEARCHES.c.key_id == key_id), rows.status_from_row
        )
