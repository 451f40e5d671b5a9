"""What the dashboard asks: every statement follows an index and reads a page of rows."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, Row, Select, and_, func, select
from sqlalchemy.orm import Session

from autotune.domain.browsing import (
    Improvement,
    KeyFilter,
    KeyMiss,
    NumberedTrial,
    SameConfig,
    SearchedKey,
    TargetCount,
)
from autotune.domain.chip import Chip
from autotune.domain.codec import to_data
from autotune.domain.config import Config
from autotune.domain.job import Job, State
from autotune.domain.key import Key
from autotune.domain.refusals import Refusals
from autotune.domain.toolchain import Toolchain
from autotune_db import query, rows
from autotune_db.check_pages import SqlCheckPages
from autotune_db.json_columns import digest
from autotune_db.query import MAX_ID
from autotune_db.tables import JobRow, KeyRow, TrialRow

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_KEYS = 12  # with the same problem under other toolchains

_TRIED = select(TrialRow.id).where(TrialRow.key_id == KeyRow.id).exists()


class SqlBrowse(SqlCheckPages):
    """Implements ``autotune.ports.Pages``."""

    def targets(self, kernel: str | None = None) -> Sequence[TargetCount]:
        columns = (KeyRow.kernel, KeyRow.chip, KeyRow.jax, KeyRow.jaxlib, KeyRow.libtpu)
        counted = select(*columns, func.count()).where(_TRIED).group_by(*columns)
        if kernel is not None:
            counted = counted.where(KeyRow.kernel == kernel)
        return self._work.read(lambda s: list(map(_target_count, s.execute(counted))))

    def latest(self, limit: int) -> Sequence[SearchedKey]:
        keys = query.tried_keys(None, None).limit(limit)
        found = self._work.read(lambda s: [query.tried(s, key) for key, _ in s.execute(keys)])
        return sorted(found, key=lambda one: one.last_at or _BEGINNING, reverse=True)

    def problems(
        self, kernel: str, only: KeyFilter, offset: int, limit: int
    ) -> Sequence[SearchedKey]:
        wanted = select(KeyRow).where(*_of(kernel, only)).order_by(KeyRow.id.desc())
        page = wanted.offset(offset).limit(limit)
        return self._work.read(lambda s: [query.tried(s, key) for key in s.scalars(page)])

    def count_problems(self, kernel: str, only: KeyFilter) -> int:
        counted = select(func.count()).select_from(KeyRow).where(*_of(kernel, only))
        return self._work.read(lambda s: s.scalar(counted)) or 0

    def searched(self, key_id: int) -> SearchedKey | None:
        def find(session: Session) -> SearchedKey | None:
            key = session.get(KeyRow, key_id)
            return query.tried(session, key) if key else None

        return self._work.read(find) if 0 < key_id <= MAX_ID else None

    def key_of(self, trial_id: int) -> int | None:
        found = select(TrialRow.key_id).where(TrialRow.id == trial_id)
        return self._work.read(lambda s: s.scalar(found)) if 0 < trial_id <= MAX_ID else None

    def refusals(self, key_id: int) -> Refusals | None:
        return self._work.read(lambda s: query.refusals(s, key_id))

    def trials(
        self, key_id: int, kind: str | None, *, fastest: bool, offset: int, limit: int
    ) -> Sequence[NumberedTrial]:
        wanted = select(TrialRow).where(TrialRow.key_id == key_id)
        if fastest:
            wanted = wanted.where(TrialRow.time_us.is_not(None)).order_by(TrialRow.time_us)
        elif kind is not None:
            wanted = wanted.where(TrialRow.kind == kind).order_by(TrialRow.number)
        else:
            wanted = wanted.order_by(TrialRow.number)
        return self._numbered(wanted.offset(offset).limit(limit))

    def fastest_and_others(self, key_id: int, fastest: int, others: int) -> Sequence[NumberedTrial]:
        mine = select(TrialRow).where(TrialRow.key_id == key_id)
        timed = mine.where(TrialRow.time_us.is_not(None)).order_by(TrialRow.time_us).limit(fastest)
        untimed = mine.where(TrialRow.time_us.is_(None)).limit(others)
        found = [*self._numbered(timed), *self._numbered(untimed)]
        return sorted(found, key=lambda one: one.trial.number)

    def with_config(self, key_id: int, config: Config) -> NumberedTrial | None:
        wanted = select(TrialRow).where(
            TrialRow.key_id == key_id, TrialRow.config_digest == digest(to_data(config))
        )
        return next(iter(self._numbered(wanted)), None)

    def by_number(self, key_id: int, number: int) -> NumberedTrial | None:
        wanted = select(TrialRow).where(TrialRow.key_id == key_id, TrialRow.number == number)
        found = self._numbered(wanted) if 0 <= number <= MAX_ID else ()
        return next(iter(found), None)

    def newest(self, key_id: int) -> int:
        newest = select(func.max(TrialRow.id)).where(TrialRow.key_id == key_id)
        return self._work.read(lambda s: s.scalar(newest)) or 0

    def best_so_far(self, key_id: int) -> Sequence[Improvement]:
        best = func.min(TrialRow.time_us).over(order_by=TrialRow.number, rows=(None, 0))
        all_of_it = (
            select(TrialRow.number, TrialRow.created_at, TrialRow.time_us, best.label("best"))
            .where(TrialRow.key_id == key_id)
            .subquery()
        )
        c = all_of_it.c
        better = select(c.number, c.created_at, c.time_us).where(c.time_us == c.best)
        found = self._work.read(lambda s: s.execute(better.order_by(c.number)).all())
        steps: list[Improvement] = []
        for number, at, time_us in found:
            if not steps or time_us < steps[-1].time_us:
                steps.append(Improvement(number=number, at=at, time_us=time_us))
        return steps

    def trial(self, trial_id: int) -> NumberedTrial | None:
        wanted = select(TrialRow).where(TrialRow.id == trial_id)
        return next(iter(self._numbered(wanted)), None) if 0 < trial_id <= MAX_ID else None

    def other_toolchains(self, key: Key) -> Sequence[SearchedKey]:
        own = rows.key_identity(key)
        same = (getattr(KeyRow, name) == own[name] for name in ("kernel", "chip", "problem_digest"))
        wanted = select(KeyRow).where(*same, _TRIED).order_by(KeyRow.id.desc()).limit(_MOST_KEYS)
        return self._work.read(lambda s: [query.tried(s, row) for row in s.scalars(wanted)])

    def same_configs(self, key_ids: Sequence[int], fastest: int) -> Sequence[SameConfig]:
        chosen = (
            one.trial.config
            for key_id in key_ids
            for one in self.fastest_and_others(key_id, fastest, fastest)
        )
        by_config: dict[Config, dict[int, NumberedTrial]] = {config: {} for config in chosen}
        digests = [digest(to_data(config)) for config in by_config]
        wanted = select(TrialRow).where(
            TrialRow.key_id.in_(key_ids), TrialRow.config_digest.in_(digests)
        )

        def find(session: Session) -> None:
            for row in session.scalars(wanted):
                trial = rows.trial_from_row(row)
                by_config[trial.config][row.key_id] = NumberedTrial(id=row.id, trial=trial)

        self._work.read(find)
        return [SameConfig(config=config, trials=found) for config, found in by_config.items()]

    def missed_keys(self, offset: int, limit: int) -> Sequence[KeyMiss]:
        page = query.missed().offset(offset).limit(limit)
        return self._work.read(
            lambda s: [
                KeyMiss(key_id=miss.key_id, miss=rows.miss_from_row(miss, key))
                for key, miss in s.execute(page)
            ]
        )

    def open_jobs(self, limit: int) -> Sequence[Job]:
        return self._work.read(lambda s: list(map(rows.job_from_row, s.scalars(_open(limit)))))

    def _numbered(self, wanted: Select[TrialRow]) -> Sequence[NumberedTrial]:
        return self._work.read(
            lambda s: [
                NumberedTrial(id=row.id, trial=rows.trial_from_row(row))
                for row in s.scalars(wanted)
            ]
        )


def _open(limit: int) -> Select[JobRow]:
    wanted = JobRow.state.in_((State.RUNNING.value, State.QUEUED.value))
    return select(JobRow).where(wanted).order_by(JobRow.id.desc()).limit(limit)


def _target_count(row: Row[str, str, str, str, str, int]) -> TargetCount:
    kernel, chip, jax, jaxlib, libtpu, count = row
    toolchain = Toolchain(jax=jax, jaxlib=jaxlib, libtpu=libtpu)
    return TargetCount(kernel=kernel, chip=Chip(chip), toolchain=toolchain, searched=count)


def _of(kernel: str, only: KeyFilter) -> tuple[ColumnElement[bool], ...]:
    conditions: list[ColumnElement[bool]] = [KeyRow.kernel == kernel, _TRIED]
    if only.chip is not None:
        conditions.append(KeyRow.chip == only.chip.value)
    if only.toolchain is not None:
        t = only.toolchain
        conditions.append(
            and_(KeyRow.jax == t.jax, KeyRow.jaxlib == t.jaxlib, KeyRow.libtpu == t.libtpu)
        )
    return tuple(conditions)
