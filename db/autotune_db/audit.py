"""Who wrote what: a row in the transaction of each write."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Connection, insert, select

from autotune.domain.browsing import AuditEntry, Author
from autotune_db import query, rows
from autotune_db.tables import AUDIT
from autotune_db.transaction import Adapter

_MOST_NAMED = 5
_author: ContextVar[Author] = ContextVar("author", default=Author())  # noqa: B039 (frozen)


@contextmanager
def written_by(author: Author) -> Iterator[None]:
    """Whose name stands beside all that this thread writes inside."""
    before = _author.set(author)
    try:
        yield
    finally:
        _author.reset(before)


def note(connection: Connection, now: datetime, action: str, change: str) -> None:
    """Kept if, and only if, the transaction is."""
    values = {"created_at": now, "action": action, "change": change, **asdict(_author.get())}
    connection.execute(insert(AUDIT).values(values))


def some_of(names: Iterable[object]) -> str:
    """The first few, and how many more there are."""
    texts = list(map(str, names))
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return "; ".join(texts[:_MOST_NAMED]) + more


class SqlAudit(Adapter):
    """What was written, and by whom."""

    def entries(self, limit: int = 50, before: int | None = None) -> Sequence[AuditEntry]:
        return self._rows(
            query.page(select(AUDIT), AUDIT.c.id, before, limit), rows.audit_entry_from_row
        )
