"""How far searches are: a row for each key that was searched, overwritten."""

from dataclasses import asdict

from sqlalchemy import Connection, select

from autotune.domain.browsing import SearchStatus
from autotune.domain.job import Progress
from autotune.domain.key import Key
from autotune_db import query
from autotune_db.adapter import Adapter
from autotune_db.json_columns import from_text, to_text
from autotune_db.rows import AnyRow
from autotune_db.tables import SEARCHES


class SqlSearches(Adapter):
    """How far searches are, for those who watch."""

    def report(self, key: Key, space: str, progress: Progress, *, over: bool) -> None:
        said = {
            "space": space,
            "progress": to_text(asdict(progress)),
            "over": over,
            "heard_at": self._clock(),
        }

        def write(connection: Connection, _: bool) -> None:
            values = {"key_id": query.key_id(connection, key), **said}
            query.upsert(connection, SEARCHES, values, ["key_id"], said)

        self._work.write(write)

    def progress(self, key: Key) -> Progress:
        def read(connection: Connection) -> Progress:
            wanted = select(SEARCHES).where(SEARCHES.c.key_id == query.find_key(connection, key))
            row = connection.execute(wanted).first()
            return status_from_row(row).progress if row else Progress()

        return self._work.read(read)

    def status(self, key_id: int) -> SearchStatus | None:
        wanted = select(SEARCHES).where(SEARCHES.c.key_id == key_id)

        def read(connection: Connection) -> SearchStatus | None:
            row = connection.execute(wanted).first()
            return None if row is None else status_from_row(row)

        return self._work.read(read)


def status_from_row(row: AnyRow) -> SearchStatus:
    return SearchStatus(
        space=row.space,
        progress=Progress(**from_text(row.progress)),
        over=row.over,
        heard_at=row.heard_at,
    )
