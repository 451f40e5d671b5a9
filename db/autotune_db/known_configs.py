"""Configs that tables of others have."""

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from autotune.domain.codec import from_data, to_data
from autotune.domain.known_config import KnownConfig
from autotune_db import query
from autotune_db.adapter import Adapter
from autotune_db.json_columns import digest, from_text, to_text
from autotune_db.tables import KNOWN_CONFIGS


class SqlKnownConfigs(Adapter):
    """Implements that part of ``domain.store.Store``."""

    def save_known_configs(self, found: Sequence[KnownConfig]) -> int:
        def write(connection: Connection, _: bool) -> int:
            before = _count(connection)
            for one in found:
                data = to_data(one)
                same = {n: v for n, v in data.items() if n not in ("source", "time_us")}
                again = {"content": to_text(data)}
                values = {"digest": digest(same), "kernel": one.kernel, "created_at": self._clock()}
                if one.time_us is None:
                    query.insert_new(connection, KNOWN_CONFIGS, [{**values, **again}])
                else:
                    query.upsert(connection, KNOWN_CONFIGS, {**values, **again}, ["digest"], again)
            return _count(connection) - before

        return self._work.write(write)

    def known_configs(self, kernel: str | None = None) -> Sequence[KnownConfig]:
        wanted = select(KNOWN_CONFIGS.c.content).order_by(KNOWN_CONFIGS.c.id)
        if kernel is not None:
            wanted = wanted.where(KNOWN_CONFIGS.c.kernel == kernel)
        return self._work.read(
            lambda s: [from_data(KnownConfig, from_text(text)) for text in s.scalars(wanted)]
        )


def _count(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(KNOWN_CONFIGS)) or 0
