"""What was tuned together, as it was tuned last."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

from sqlalchemy import Connection, select

from autotune.domain.codec import from_data, to_data
from autotune.domain.workload import TunedWorkload
from autotune_db import query
from autotune_db.rows import AnyRow
from autotune_db.tables import WORKLOADS, from_text, to_text
from autotune_db.transaction import Adapter, writes

_MOST_NAMES = 1_000


class SqlWorkloads(Adapter):
    """By name; ``datetime``: when it was tuned."""

    @writes
    def save(self, connection: Connection, workload: TunedWorkload) -> None:
        """In the place of the one of its name."""
        name = workload.name.encode(errors="replace").decode()  # of a file, maybe in no encoding
        content = to_text(to_data(replace(workload, name=name)))
        values = {"content": content, "tuned_at": self._clock()}
        query.upsert(connection, WORKLOADS, {"name": name}, values)

    def names(self) -> Sequence[tuple[str, datetime]]:
        """The thousand tuned last, the last one first."""
        newest = WORKLOADS.c.tuned_at.desc(), WORKLOADS.c.id
        wanted = select(WORKLOADS.c.name, WORKLOADS.c.tuned_at).order_by(*newest)
        return self._rows(wanted.limit(_MOST_NAMES), lambda row: (row.name, row.tuned_at))

    def find(self, name: str) -> tuple[TunedWorkload, datetime] | None:
        wanted = select(WORKLOADS).where(WORKLOADS.c.name == name)
        return self._first(wanted, workload_from_row)


def workload_from_row(row: AnyRow) -> tuple[TunedWorkload, datetime]:
    return _workload(row.content), row.tuned_at


@lru_cache(maxsize=4)  # ten thousand problems take half a second
def _workload(content: str) -> TunedWorkload:
    return from_data(TunedWorkload, from_text(content))
