"""What the dashboard asks: a page of rows, by an index; only lists of keys by their newest trial or
their gain sort all keys."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from itertools import pairwise
from statistics import fmean
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, or_, select

from autotune.domain.browsing import (
    History,
    Improvement,
    KeyFilter,
    KeyMiss,
    KeyOrder,
    NumberedTrial,
    RunningSearch,
    SameConfig,
    SearchedKey,
    TargetCount,
)
from autotune.domain.chip import Chip
from autotune.domain.codec import to_data
from autotune.domain.config import Config
from autotune.domain.job import Job, State
from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.domain.record_check import CheckVerdict
from autotune.domain.refusals import Refusals
from autotune.domain.toolchain import Toolchain
from autotune_db import query, rows
from autotune_db.check_pages import SqlCheckPages
from autotune_db.json_columns import digest, to_text
from autotune_db.query import MAX_ID, Query
from autotune_db.searches import status_from_row
from autotune_db.tables import (
    CHECKS,
    JOBS,
    KEYS,
    MISSES,
    PINS,
    RECORDS,
    SEARCHES,
    TRIALS,
)

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_KEYS = 12  # with the same problem under other toolchains

_RATED = 10  # trials that the rate of a running search is taken from
_PAUSE_S = 300.0  # without a trial: it was stopped and went on later
_MOST_MOMENTS = 10_000

_TRIED = KEYS.c.newest_trial.is_not(None)
_RECORDED, _MISSED = (
    select(table.c.id).where(table.c.key_id == KEYS.c.id).exists() for table in (RECORDS, MISSES)
)
_PLACES: list[ColumnElement[str]] = [
    KEYS.c[name] for name in ("kernel", "chip", "jax", "libtpu", "fingerprint", "problem")
]
_TEXT: ColumnElement[str] = reduce(lambda one, other: one + "\n" + other, _PLACES)
"""All that a word may stand in; no word has the end of a line in it."""
_ORDERS: dict[KeyOrder, tuple[Any, ...]] = {
    KeyOrder.NEWEST: (),
    KeyOrder.KERNEL: (KEYS.c.kernel,),
    KeyOrder.CHIP: (KEYS.c.chip, KEYS.c.kernel),
    KeyOrder.FASTEST: (KEYS.c.best_us.asc().nulls_last(),),
    KeyOrder.GAIN: ((KEYS.c.default_us / KEYS.c.best_us).desc().nulls_last(),),
}


class SqlBrowse(SqlCheckPages):
    """What the pages ask."""

    def targets(self) -> Sequence[TargetCount]:
        columns = (KEYS.c.kernel, KEYS.c.chip, KEYS.c.jax, KEYS.c.jaxlib, KEYS.c.libtpu)
        counted = select(*columns, func.count()).where(_TRIED).group_by(*columns)
        return self._work.read(lambda s: list(map(_target_count, s.execute(counted))))

    def places(self, kernel: str | None = None) -> Collection[tuple[Chip, Toolchain]]:
        columns = (KEYS.c.chip, KEYS.c.jax, KEYS.c.jaxlib, KEYS.c.libtpu)
        wanted = select(*columns).where(*query.only(kernel, None)).distinct()
        return self._work.read(
            lambda s: [
                (Chip(chip), Toolchain(jax=jax, jaxlib=jaxlib, libtpu=libtpu))
                for chip, jax, jaxlib, libtpu in s.execute(wanted)
            ]
        )

    def latest(self, limit: int) -> Sequence[SearchedKey]:
        keys = query.tried_keys(None, None).limit(limit)
        found = self._work.read(lambda s: query.tried(s, s.execute(keys)))
        return sorted(found, key=lambda one: one.last_at or _BEGINNING, reverse=True)

    def problems(
        self, only: KeyFilter, offset: int, limit: int, order: KeyOrder = KeyOrder.NEWEST
    ) -> Sequence[SearchedKey]:
        wanted = select(KEYS).where(*_of(only)).order_by(*_ORDERS[order], KEYS.c.id.desc())
        page = wanted.offset(offset).limit(limit)
        return self._work.read(lambda s: query.tried(s, s.execute(page)))

    def count_problems(self, only: KeyFilter) -> int:
        counted = select(func.count()).select_from(KEYS).where(*_of(only))
        return self._work.read(lambda s: s.scalar(counted)) or 0

    def numbers(self, keys: Collection[Key]) -> Mapping[Key, int]:
        return self._work.read(lambda s: query.find_keys(s, keys))

    def published(self, key_id: int, limit: int) -> Sequence[tuple[int, Record]]:
        found = query.with_keys(RECORDS).where(RECORDS.c.key_id == key_id)
        page = found.order_by(RECORDS.c.id.desc()).limit(limit)
        return self._work.read(
            lambda s: [
                (row.id, rows.record_from_row(row, rows.key_from_row(row)))
                for row in s.execute(page)
            ]
        )

    def is_pinned(self, key_id: int) -> bool:
        held = select(PINS.c.id).where(PINS.c.key_id == key_id, PINS.c.until_id.is_(None))
        return self._work.read(lambda s: s.scalar(held.limit(1))) is not None

    def running(self, since: datetime) -> Sequence[RunningSearch]:
        going = select(SEARCHES).where(SEARCHES.c.over.is_(False), SEARCHES.c.heard_at >= since)

        def find(connection: Connection) -> list[RunningSearch]:
            searches = connection.execute(going.order_by(SEARCHES.c.heard_at.desc())).all()
            wanted = select(KEYS).where(KEYS.c.id.in_([row.key_id for row in searches]))
            found = {one.id: one for one in query.tried(connection, connection.execute(wanted))}
            return [
                RunningSearch(
                    searched=found[row.key_id],
                    status=status_from_row(row),
                    trial_s=_trial_s(connection, row.key_id),
                )
                for row in searches
            ]

        return self._work.read(find)

    def history(self) -> History:
        missed = select(MISSES.c.first_at).where(
            ~select(RECORDS.c.id).where(RECORDS.c.key_id == MISSES.c.key_id).exists()
        )
        broken = select(CHECKS.c.checked_at).where(CHECKS.c.verdict == CheckVerdict.BROKEN.value)

        def moments(connection: Connection, wanted: Select[datetime]) -> tuple[datetime, ...]:
            return tuple(sorted(connection.scalars(wanted.limit(_MOST_MOMENTS))))

        return self._work.read(
            lambda s: History(missed_at=moments(s, missed), broken_at=moments(s, broken))
        )

    def searched(self, key_id: int) -> SearchedKey | None:
        def find(connection: Connection) -> SearchedKey | None:
            key = query.get(connection, KEYS, key_id)
            return query.tried(connection, [key])[0] if key else None

        return self._work.read(find) if 0 < key_id <= MAX_ID else None

    def key_of(self, trial_id: int) -> int | None:
        found = select(TRIALS.c.key_id).where(TRIALS.c.id == trial_id)
        return self._work.read(lambda s: s.scalar(found)) if 0 < trial_id <= MAX_ID else None

    def refusals(self, key_id: int) -> Refusals | None:
        return self._work.read(lambda s: query.refusals(s, key_id))

    def trials(
        self, key_id: int, kind: str | None, *, fastest: bool, offset: int, limit: int
    ) -> Sequence[NumberedTrial]:
        wanted = select(TRIALS).where(TRIALS.c.key_id == key_id)
        if fastest:
            wanted = wanted.where(TRIALS.c.time_us.is_not(None)).order_by(TRIALS.c.time_us)
        elif kind is not None:
            wanted = wanted.where(TRIALS.c.kind == kind).order_by(TRIALS.c.number)
        else:
            wanted = wanted.order_by(TRIALS.c.number)
        return self._numbered(wanted.offset(offset).limit(limit))

    def fastest_and_others(self, key_id: int, fastest: int, others: int) -> Sequence[NumberedTrial]:
        mine = select(TRIALS).where(TRIALS.c.key_id == key_id)
        timed = mine.where(TRIALS.c.time_us.is_not(None)).order_by(TRIALS.c.time_us).limit(fastest)
        untimed = mine.where(TRIALS.c.time_us.is_(None)).limit(others)
        found = [*self._numbered(timed), *self._numbered(untimed)]
        return sorted(found, key=lambda one: one.trial.number)

    def with_config(self, key_id: int, config: Config) -> NumberedTrial | None:
        wanted = select(TRIALS).where(
            TRIALS.c.key_id == key_id, TRIALS.c.config_digest == digest(to_data(config))
        )
        return next(iter(self._numbered(wanted)), None)

    def by_number(self, key_id: int, number: int) -> NumberedTrial | None:
        wanted = select(TRIALS).where(TRIALS.c.key_id == key_id, TRIALS.c.number == number)
        found = self._numbered(wanted) if 0 <= number <= MAX_ID else ()
        return next(iter(found), None)

    def newest(self, key_id: int) -> int:
        newest = select(func.max(TRIALS.c.id)).where(TRIALS.c.key_id == key_id)
        return self._work.read(lambda s: s.scalar(newest)) or 0

    def best_so_far(self, key_id: int) -> Sequence[Improvement]:
        """From the fastest on, each that came before all faster ones: an index has all of it."""
        c = TRIALS.c
        by_time = (c.time_us, c.number)
        first = func.min(c.number).over(order_by=by_time, rows=(None, 0)).label("first")
        timed = select(c.number, first).where(c.key_id == key_id, c.time_us.is_not(None)).subquery()
        wanted = select(c.number, c.created_at.label("at"), c.time_us).where(
            c.key_id == key_id,
            c.number.in_(select(timed.c.number).where(timed.c.number == timed.c.first)),
        )
        found = self._work.read(lambda s: s.execute(wanted.order_by(c.number)).mappings().all())
        return [Improvement(**one) for one in found]

    def trial(self, trial_id: int) -> NumberedTrial | None:
        wanted = select(TRIALS).where(TRIALS.c.id == trial_id)
        return next(iter(self._numbered(wanted)), None) if 0 < trial_id <= MAX_ID else None

    def other_toolchains(self, key: Key) -> Sequence[SearchedKey]:
        own = rows.key_identity(key)
        same = (KEYS.c[name] == own[name] for name in ("kernel", "chip", "problem_digest"))
        wanted = select(KEYS).where(*same, _TRIED).order_by(KEYS.c.id.desc()).limit(_MOST_KEYS)
        return self._work.read(lambda s: query.tried(s, s.execute(wanted)))

    def other_chips(self, key: Key) -> Sequence[SearchedKey]:
        own = rows.key_identity(key)
        same = (KEYS.c[name] == own[name] for name in ("kernel", "problem_digest"))
        others = select(KEYS).where(*same, KEYS.c.chip != own["chip"], _TRIED)
        wanted = others.order_by(KEYS.c.id.desc()).limit(_MOST_KEYS)
        return self._work.read(lambda s: query.tried(s, s.execute(wanted)))

    def same_configs(self, key_ids: Sequence[int], fastest: int) -> Sequence[SameConfig]:
        chosen = (
            fastest_and_other.trial.config
            for key_id in key_ids
            for fastest_and_other in self.fastest_and_others(key_id, fastest, fastest)
        )
        by_config: dict[Config, dict[int, NumberedTrial]] = {config: {} for config in chosen}
        digests = [digest(to_data(config)) for config in by_config]
        wanted = select(TRIALS).where(
            TRIALS.c.key_id.in_(key_ids), TRIALS.c.config_digest.in_(digests)
        )

        def find(connection: Connection) -> None:
            for row in connection.execute(wanted):
                trial = rows.trial_from_row(row)
                by_config[trial.config][row.key_id] = NumberedTrial(id=row.id, trial=trial)

        self._work.read(find)
        return [SameConfig(config=config, trials=found) for config, found in by_config.items()]

    def missed_keys(self, offset: int, limit: int) -> Sequence[KeyMiss]:
        page = query.missed().offset(offset).limit(limit)
        return self._work.read(
            lambda s: [
                KeyMiss(key_id=row.key_id, miss=rows.miss_from_row(row)) for row in s.execute(page)
            ]
        )

    def open_jobs(self, limit: int) -> Sequence[Job]:
        return self._work.read(lambda s: list(map(rows.job_from_row, s.execute(_open(limit)))))

    def _numbered(self, wanted: Query) -> Sequence[NumberedTrial]:
        return self._work.read(
            lambda s: [
                NumberedTrial(id=row.id, trial=rows.trial_from_row(row))
                for row in s.execute(wanted)
            ]
        )


def _open(limit: int) -> Query:
    wanted = JOBS.c.state.in_((State.RUNNING.value, State.QUEUED.value))
    return select(JOBS).where(wanted).order_by(JOBS.c.id.desc()).limit(limit)


def _target_count(row: Row[str, str, str, str, str, int]) -> TargetCount:
    kernel, chip, jax, jaxlib, libtpu, count = row
    toolchain = Toolchain(jax=jax, jaxlib=jaxlib, libtpu=libtpu)
    return TargetCount(kernel=kernel, chip=Chip(chip), toolchain=toolchain, searched=count)


def _of(only: KeyFilter) -> list[ColumnElement[bool]]:
    conditions = [*query.only(only.kernel, only.chip), *map(_has_word, only.words)]
    if only.has_record is not None:
        conditions.append(_RECORDED if only.has_record else ~_RECORDED)
    if only.toolchain is not None:
        t = only.toolchain
        conditions.append(
            and_(KEYS.c.jax == t.jax, KEYS.c.jaxlib == t.jaxlib, KEYS.c.libtpu == t.libtpu)
        )
    return [*conditions, or_(_TRIED, _RECORDED, _MISSED)]


def _has_word(word: str) -> ColumnElement[bool]:
    brought = select(RECORDS.c.key_id).where(RECORDS.c.pushed_by.icontains(word, autoescape=True))
    patterns = _patterns(word)
    if to_text(word) != f'"{word}"':  # as it stands in JSON it is another text
        patterns.append(f"%{_escaped(word)}%")
    in_problem = [_is_like(pattern) for pattern in patterns]
    stands = _TEXT.icontains(word, autoescape=True)
    return or_(stands, *in_problem, KEYS.c.id.in_(brought))


def _is_like(pattern: str) -> ColumnElement[bool]:
    """Whatever the case, which only letters have: it costs PostgreSQL as much again."""
    like = KEYS.c.problem.ilike if any(map(str.isalpha, pattern)) else KEYS.c.problem.like
    return like(pattern, escape="\\")


def _patterns(word: str) -> list[str]:
    """Of the JSON text of a problem, for a word that names sizes or options."""
    sizes = word.lower().split("x")
    if len(sizes) > 1 and all(size.isdecimal() for size in sizes):
        return ["%" + ",%".join(f'":{size}' for size in sizes) + end for end in (",%", "}%")]
    name, equals, value = (_escaped(part) for part in word.partition("="))
    given = (value, f'"{value}"') if equals else ()
    return [f'%"{name}":{one}{end}' for one in given for end in (",%", "}%")]


def _escaped(text: str) -> str:
    """As JSON has it, with nothing in it that LIKE takes for a pattern."""
    text = to_text(text)[1:-1]
    for character in "\\%_":
        text = text.replace(character, "\\" + character)
    return text


def _trial_s(connection: Connection, key_id: int) -> float | None:
    newest = select(TRIALS.c.created_at).where(TRIALS.c.key_id == key_id)
    found = list(connection.scalars(newest.order_by(TRIALS.c.id.desc()).limit(_RATED)))
    gaps = [(later - earlier).total_seconds() for later, earlier in pairwise(found)]
    return fmean(going) if (going := [gap for gap in gaps if gap < _PAUSE_S]) else None
