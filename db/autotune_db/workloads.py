"""What was tuned together, as it was tuned last."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

from sqlalchemy import select

from autotune.domain.codec import from_data, to_data
from autotune.domain.workload import TunedWorkload
from autotune_db import query
from autotune_db.adapter import Adapter
from autotune_db.json_columns import from_text, to_text
from autotune_db.tables import WORKLOADS


class SqlWorkloads(Adapter):
    """By name; ``datetime``: when it was tuned."""

    def save(self, workload: TunedWorkload) -> None:
        """In the place of the one of its name."""
        name = workload.name.encode(errors="replace").decode()  # of a file, maybe in no encoding
        again = {
            "content": to_text(to_data(replace(workload, name=name))),
            "tuned_at": self._clock(),
        }
        values = {"name": name, **again}
        self._work.write(lambda s, _: query.upsert(s, WORKLOADS, values, ["name"], again))

    def names(self) -> Sequence[tuple[str, datetime]]:
        """The thousand tuned last, the last one first."""
        wanted = select(WORKLOADS.c.name, WORKLOADS.c.tuned_at).order_by(
            WORKLOADS.c.tuned_at.desc(), WORKLOADS.c.id
        )
        wanted = wanted.limit(1_000)
        return self._work.read(lambda s: [(name, at) for name, at in s.execute(wanted)])

    def find(self, name: str) -> tuple[TunedWorkload, datetime] | None:
        wanted = select(WORKLOADS.c.content, WORKLOADS.c.tuned_at).where(WORKLOADS.c.name == name)
        row = self._work.read(lambda s: s.execute(wanted).one_or_none())
        return row and (_workload(row[0]), row[1])


@lru_cache(maxsize=4)  # ten thousand problems take half a second
def _workload(content: str) -> TunedWorkload:
    return from_data(TunedWorkload, from_text(content))
