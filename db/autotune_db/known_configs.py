"""Configs that tables of others have, and programs that were timed beside their estimates."""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, func, select

from autotune.domain.calibration import MeasuredProgram
from autotune.domain.codec import from_data, to_data
from autotune.domain.key import Chip, Toolchain
from autotune.domain.known_config import KnownConfig
from autotune_db import query
from autotune_db.damage import readable
from autotune_db.rows import AnyRow
from autotune_db.tables import CALIBRATIONS, KNOWN_CONFIGS, digest, from_text, to_text
from autotune_db.transaction import Adapter, writes


class SqlKnownConfigs(Adapter):
    """Each once, whatever table it stands in."""

    @writes
    def save_known_configs(self, connection: Connection, configs: Sequence[KnownConfig]) -> int:
        """How many were not there yet. One that was has the time and the source of one with a
        time from now on."""
        before = _count(connection)
        for config in configs:
            data = to_data(config)
            by = {"digest": digest({n: data[n] for n in data if n not in ("source", "time_us")})}
            values = {"content": to_text(data)}
            new = {"kernel": config.kernel, "created_at": self._clock()}
            if config.time_us is None:
                query.insert_new(connection, KNOWN_CONFIGS, [{**by, **values, **new}])
            else:
                query.upsert(connection, KNOWN_CONFIGS, by, values, **new)
        return _count(connection) - before

    def known_configs(self, kernel: str | None = None) -> Sequence[KnownConfig]:
        wanted = select(KNOWN_CONFIGS).order_by(KNOWN_CONFIGS.c.id)
        if kernel is not None:
            wanted = wanted.where(KNOWN_CONFIGS.c.kernel == kernel)
        return self._rows(wanted, config_from_row)


class SqlCalibrations(Adapter):
    """Each program once: the last time counts, and one that was timed here before one of a file."""

    @writes
    def save_calibration(self, connection: Connection, rows: Sequence[MeasuredProgram]) -> None:
        for row in rows:
            data = to_data(row)
            by = {"digest": digest([data["key"], data["config"]])}
            values = {"content": to_text(data), "chip": row.key.chip.value}
            if row.from_file:
                new = {**by, **values, "created_at": self._clock()}
                query.insert_new(connection, CALIBRATIONS, [new])
            else:
                query.upsert(connection, CALIBRATIONS, by, values, created_at=self._clock())

    @writes
    def drop_file_times(self, connection: Connection, chip: Chip, toolchain: Toolchain) -> None:
        rows = select(CALIBRATIONS).where(CALIBRATIONS.c.chip == chip.value)
        read = readable(connection, rows, lambda row: (row.id, measured_from_row(row)))
        old = [n for n, row in read if row.from_file and row.key.toolchain == toolchain]
        for number in old:
            connection.execute(delete(CALIBRATIONS).where(CALIBRATIONS.c.id == number))

    def calibration(self, chip: Chip, toolchain: Toolchain) -> list[MeasuredProgram]:
        wanted = select(CALIBRATIONS).where(CALIBRATIONS.c.chip == chip.value)
        rows = self._rows(wanted.order_by(CALIBRATIONS.c.id), measured_from_row)
        return [row for row in rows if row.key.toolchain == toolchain]


def measured_from_row(row: AnyRow) -> MeasuredProgram:
    return from_data(MeasuredProgram, from_text(row.content))


def config_from_row(row: AnyRow) -> KnownConfig:
    return from_data(KnownConfig, from_text(row.content))


def _count(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(KNOWN_CONFIGS)) or 0
