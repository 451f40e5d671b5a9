"""How far searches are, what was tuned together, and profiles of trials: each as it was last. And
what comes from outside: configs of others' tables, and programs that were timed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlalchemy import Connection, delete, func, select

from autotune.domain.browsing import SearchStatus
from autotune.domain.calibration import MeasuredProgram
from autotune.domain.codec import from_data, to_data
from autotune.domain.job import Progress
from autotune.domain.key import Chip, Key, Toolchain
from autotune.domain.known_config import KnownConfig
from autotune.domain.workload import TunedWorkload
from autotune_db import query, rows
from autotune_db.damage import readable
from autotune_db.rows import AnyRow
from autotune_db.tables import (
    CALIBRATIONS,
    KNOWN_CONFIGS,
    PROFILES,
    SEARCHES,
    WORKLOADS,
    digest,
    from_text,
    to_text,
)
from autotune_db.transaction import Adapter, writes

if TYPE_CHECKING:
    from autotune.estimating.simulator.drawing.picture import ConfigProfile


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


class SqlProfiles(Adapter):
    """By the number of the trial in the whole database."""

    @writes
    def save(self, connection: Connection, trial_id: int, profile: "ConfigProfile") -> None:
        values = {"content": to_text(to_data(profile)), "created_at": self._clock()}
        query.upsert(connection, PROFILES, {"trial_id": trial_id}, values)

    def find(self, trial_ids: Sequence[int]) -> Mapping[int, "ConfigProfile"]:
        wanted = select(PROFILES).where(PROFILES.c.trial_id.in_(trial_ids))
        return dict(self._rows(wanted, lambda row: (int(row.trial_id), profile_from_row(row))))


def profile_from_row(row: AnyRow) -> "ConfigProfile":
    from autotune.estimating.simulator.drawing.picture import ConfigProfile  # no lookup needs it

    return from_data(ConfigProfile, from_text(row.content))


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
        for chip, toolchain in {(r.key.chip, r.key.toolchain) for r in rows if r.from_file}:
            old = select(CALIBRATIONS).where(CALIBRATIONS.c.chip == chip.value)
            read = readable(connection, old, lambda row: (row.id, measured_from_row(row)))
            for number in [n for n, r in read if r.from_file and r.key.toolchain == toolchain]:
                connection.execute(delete(CALIBRATIONS).where(CALIBRATIONS.c.id == number))
        for row in rows:
            data = to_data(row)
            by = {"digest": digest([data["key"], data["config"]])}
            values = {"content": to_text(data), "chip": row.key.chip.value}
            if row.from_file:
                new = {**by, **values, "created_at": self._clock()}
                query.insert_new(connection, CALIBRATIONS, [new])
            else:
                query.upsert(connection, CALIBRATIONS, by, values, created_at=self._clock())

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
