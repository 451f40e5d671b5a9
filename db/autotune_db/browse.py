"""What the dashboard asks: a page of rows, by an index; only lists of keys by a figure look at all
keys."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import fmean

from sqlalchemy import ColumnElement, Connection, Table, and_, false, func, or_, select

from autotune.domain.browsing import (
    Improvement,
    KeyFilter,
    KeyMiss,
    KeySums,
    NumberedTrial,
    RunningSearch,
    SameConfig,
    SearchedKey,
    TargetCount,
)
from autotune.domain.codec import to_data
from autotune.domain.job import Job, State
from autotune.domain.key import Chip, Key, Toolchain
from autotune.domain.problem import Config
from autotune.domain.record import CheckVerdict, Record
from autotune_db import query, rows
from autotune_db.checks import SqlCheckPages
from autotune_db.misses import missed
from autotune_db.query import MAX_ID, Query
from autotune_db.rows import AnyRow, toolchain_from_columns
from autotune_db.tables import (
    CHECKS,
    JOBS,
    KEYS,
    MISSES,
    PINS,
    RECORDS,
    SEARCHES,
    TRIALS,
    digest,
    to_text,
)
from autotune_db.transaction import reads

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_KEYS = 12  # with the same problem under other toolchains

_RATED = 10  # trials that the rate of a running search is taken from
_PAUSE_S = 300.0  # without a trial: it was stopped and went on later

_TRIED = KEYS.c.newest_trial.is_not(None)
_RECORDED = query.has_record(KEYS)
_MISSED = select(MISSES.c.id).where(MISSES.c.key_id == KEYS.c.id).exists()
_BROKEN = CHECKS.c.verdict == CheckVerdict.BROKEN.value
_STATES: dict[str, ColumnElement[bool]] = {
    "published": _RECORDED,
    "unpublished": ~_RECORDED,
    "missing": _MISSED,
    "broken": select(CHECKS.c.id).where(CHECKS.c.key_id == KEYS.c.id, _BROKEN).exists(),
}
KEY_ORDER = {"kernel": KEYS.c.kernel, "chip": KEYS.c.chip}
JOB_ORDER = {
    "job": JOBS.c.id,
    "state": JOBS.c.state,
    "kernel": JOBS.c.kernel,
    "asked": JOBS.c.created_at,
}


class SqlBrowse(SqlCheckPages):
    """What the pages ask."""

    def targets(self) -> Sequence[TargetCount]:
        columns = (KEYS.c.kernel, KEYS.c.chip, *query.versions(KEYS))
        counted = select(*columns, func.count()).where(_TRIED).group_by(*columns)
        return self._rows(counted, _target_count)

    def places(self, kernel: str | None = None) -> Collection[tuple[Chip, Toolchain]]:
        columns = (KEYS.c.chip, *query.versions(KEYS))
        wanted = select(*columns).where(*query.only(kernel, None)).distinct()
        return self._rows(wanted, lambda row: (Chip(row[0]), toolchain_from_columns(*row[1:])))

    @reads
    def latest(self, connection: Connection, limit: int) -> Sequence[SearchedKey]:
        keys = query.latest_tried(connection, limit)
        return sorted(keys, key=lambda key: key.last_at or _BEGINNING, reverse=True)

    @reads
    def fitting(self, connection: Connection, only: KeyFilter, order: str = "") -> Sequence[int]:
        """The numbers of all that fit, the newest first. ``order``: a name of ``KEY_ORDER``."""
        wanted = select(KEYS.c.id).where(*_of(only))
        return list(connection.scalars(query.ordered(wanted, order, KEY_ORDER, KEYS.c.id.desc())))

    @reads
    def sums(self, connection: Connection, only: KeyFilter) -> Sequence[KeySums]:
        """Of all that fit, the newest first."""
        columns = KEYS.c.id, KEYS.c.best_us, KEYS.c.default_us, KEYS.c.trial_count
        wanted = select(*columns).where(*_of(only)).order_by(KEYS.c.id.desc())
        return list(map(KeySums._make, connection.execute(wanted)))

    def numbered(self, ids: Sequence[int]) -> Sequence[SearchedKey]:
        """In this order."""
        by_id = {key.id: key for key in self._tried(select(KEYS).where(KEYS.c.id.in_(ids)))}
        return [by_id[number] for number in ids if number in by_id]

    @reads
    def searching(
        self, connection: Connection, ids: Sequence[int], since: datetime
    ) -> Collection[int]:
        """Which of these keys have a search that was heard of since then."""
        going = select(SEARCHES.c.key_id).where(*_is_alive(since), SEARCHES.c.key_id.in_(ids))
        return set(connection.scalars(going))

    @reads
    def numbers(self, connection: Connection, keys: Collection[Key]) -> Mapping[Key, int]:
        return query.find_keys(connection, keys)

    def published(self, key_id: int, limit: int) -> Sequence[tuple[int, Record]]:
        of_key = query.with_keys(RECORDS).where(RECORDS.c.key_id == key_id)
        newest = of_key.order_by(RECORDS.c.id.desc()).limit(limit)
        return self._rows(newest, query.numbered_record)

    def is_pinned(self, key_id: int) -> bool:
        pin = select(PINS).where(PINS.c.key_id == key_id, PINS.c.until_id.is_(None))
        return self._first(pin, bool) is not None

    @reads
    def running(self, connection: Connection, since: datetime) -> Sequence[RunningSearch]:
        going = select(SEARCHES).where(*_is_alive(since))
        searches = connection.execute(going.order_by(SEARCHES.c.heard_at.desc())).all()
        ids = KEYS.c.id.in_([row.key_id for row in searches])
        keys = {key.id: key for key in query.tried(connection, select(KEYS).where(ids))}
        return [
            RunningSearch(
                searched=keys[row.key_id], status=status, trial_s=_trial_s(connection, row.key_id)
            )
            for row in searches
            if row.key_id in keys
            if (status := query.read(connection, SEARCHES, row.id, rows.status_from_row))
        ]

    def searched(self, key_id: int) -> SearchedKey | None:
        key = select(KEYS).where(KEYS.c.id == key_id)
        return next(iter(self._tried(key)), None) if 0 < key_id <= MAX_ID else None

    @reads
    def key_of(self, connection: Connection, trial_id: int) -> int | None:
        row = query.get(connection, TRIALS, trial_id)
        return row.key_id if row else None

    def trials(
        self, key_id: int, kind: str | None, *, fastest: bool, offset: int, limit: int
    ) -> Sequence[NumberedTrial]:
        wanted = _trials(key_id)
        if fastest:
            wanted = wanted.where(TRIALS.c.time_us.is_not(None)).order_by(TRIALS.c.time_us)
        elif kind is not None:
            wanted = wanted.where(TRIALS.c.kind == kind).order_by(TRIALS.c.number)
        else:
            wanted = wanted.order_by(TRIALS.c.number)
        return self._rows(wanted.offset(offset).limit(limit), _numbered)

    def fastest_and_others(self, key_id: int, fastest: int, others: int) -> Sequence[NumberedTrial]:
        timed = self.trials(key_id, None, fastest=True, offset=0, limit=fastest)
        untimed = _trials(key_id).where(TRIALS.c.time_us.is_(None)).limit(others)
        both = [*timed, *self._rows(untimed, _numbered)]
        return sorted(both, key=lambda numbered: numbered.trial.number)

    def with_config(self, key_id: int, config: Config) -> NumberedTrial | None:
        same = TRIALS.c.config_digest == digest(to_data(config))
        return self._first(_trials(key_id).where(same), _numbered)

    def with_configs(self, configs: Mapping[int, Config]) -> Mapping[int, NumberedTrial]:
        """The trials with these configs; both by the number of the key. For pairs in a list SQLite
        would read all trials of the database: it has an index for each of these."""
        c = TRIALS.c
        each = (
            and_(c.key_id == key_id, c.config_digest == digest(to_data(config)))
            for key_id, config in configs.items()
        )
        wanted = select(TRIALS).where(or_(false(), *each))
        return dict(self._rows(wanted, lambda row: (row.key_id, _numbered(row))))

    def by_number(self, key_id: int, number: int) -> NumberedTrial | None:
        wanted = _trials(key_id).where(TRIALS.c.number == number)
        return self._first(wanted, _numbered) if 0 <= number <= MAX_ID else None

    @reads
    def newest(self, connection: Connection, key_id: int) -> int:
        newest = select(func.max(TRIALS.c.id)).where(TRIALS.c.key_id == key_id)
        return connection.scalar(newest) or 0

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
        steps = self._rows(wanted.order_by(c.number), lambda row: Improvement(**row._mapping))
        return [step for step in steps if isinstance(step.at, datetime)]

    @reads
    def trial(self, connection: Connection, trial_id: int) -> NumberedTrial | None:
        return query.read(connection, TRIALS, trial_id, _numbered)

    def other_toolchains(self, key: Key) -> Sequence[SearchedKey]:
        identity = rows.key_identity(key)
        same = (KEYS.c[name] == identity[name] for name in ("kernel", "chip", "problem_digest"))
        return self._newest_keys(*same)

    def other_chips(self, key: Key) -> Sequence[SearchedKey]:
        identity = rows.key_identity(key)
        same = (KEYS.c[name] == identity[name] for name in ("kernel", "problem_digest"))
        return self._newest_keys(*same, KEYS.c.chip != identity["chip"])

    def same_configs(self, key_ids: Sequence[int], fastest: int) -> Sequence[SameConfig]:
        by_config: dict[Config, dict[int, NumberedTrial]] = {
            numbered.trial.config: {}
            for key_id in key_ids
            for numbered in self.fastest_and_others(key_id, fastest, fastest)
        }
        digests = [digest(to_data(config)) for config in by_config]
        wanted = select(TRIALS).where(
            TRIALS.c.key_id.in_(key_ids), TRIALS.c.config_digest.in_(digests)
        )
        for key_id, numbered in self._rows(wanted, lambda row: (row.key_id, _numbered(row))):
            by_config[numbered.trial.config][key_id] = numbered
        return [SameConfig(config=config, trials=trials) for config, trials in by_config.items()]

    def missed_keys(self, offset: int, limit: int, order: str = "") -> Sequence[KeyMiss]:
        page = missed(order).offset(offset).limit(limit)
        return self._rows(
            page, lambda row: KeyMiss(key_id=row.key_id, miss=rows.miss_from_row(row))
        )

    def count_misses(self) -> int:
        return self._count(MISSES, ~query.has_record(MISSES))

    def count_broken(self) -> int:
        return self._count(CHECKS, _BROKEN)

    def jobs(
        self, states: Collection[str], offset: int, limit: int, order: str = ""
    ) -> Sequence[Job]:
        """The newest first. ``order``: a name of ``JOB_ORDER``."""
        wanted = select(JOBS).where(JOBS.c.state.in_(states))
        wanted = query.ordered(wanted, order, JOB_ORDER, JOBS.c.id.desc())
        return self._rows(wanted.offset(offset).limit(limit), rows.job_from_row)

    def open_jobs(self, limit: int) -> Sequence[Job]:
        return self.jobs((State.RUNNING, State.QUEUED), 0, limit)

    @reads
    def _count(self, connection: Connection, table: Table, *only: ColumnElement[bool]) -> int:
        return connection.scalar(select(func.count()).select_from(table).where(*only)) or 0

    def _newest_keys(self, *only: ColumnElement[bool]) -> list[SearchedKey]:
        newest = select(KEYS).where(*only, _TRIED).order_by(KEYS.c.id.desc())
        return self._tried(newest.limit(_MOST_KEYS))

    def _tried(self, keys: Query) -> list[SearchedKey]:
        return self._work.read(lambda connection: query.tried(connection, keys))


def _is_alive(since: datetime) -> tuple[ColumnElement[bool], ...]:
    return SEARCHES.c.over.is_(False), SEARCHES.c.heard_at >= since


def _trials(key_id: int) -> Query:
    return select(TRIALS).where(TRIALS.c.key_id == key_id)


def _numbered(row: AnyRow) -> NumberedTrial:
    return NumberedTrial(id=row.id, trial=rows.trial_from_row(row))


def _target_count(row: AnyRow) -> TargetCount:
    kernel, chip, *versions, count = row
    toolchain = toolchain_from_columns(*versions)
    return TargetCount(kernel=kernel, chip=Chip(chip), toolchain=toolchain, searched=count)


def _of(only: KeyFilter) -> list[ColumnElement[bool]]:
    conditions = [*query.only(only.kernel, only.chip), *map(_means, only.words)]
    if only.has_record is not None:
        conditions.append(_RECORDED if only.has_record else ~_RECORDED)
    if only.toolchain is not None:
        columns = rows.toolchain_values(only.toolchain)
        conditions += [KEYS.c[name] == value for name, value in columns.items()]
    return [*conditions, or_(_TRIED, _RECORDED, _MISSED)]


def _means(word: str) -> ColumnElement[bool]:
    """A name in one place, a state, or text that stands anywhere."""
    place, _, value = word.partition(":")
    if place in ("chip", "kernel", "jax"):
        return KEYS.c[place].icontains(value, autoescape=True)
    if place == "status" and value in _STATES:
        return _STATES[value]
    return _has_word(word)


def _has_word(word: str) -> ColumnElement[bool]:
    token = RECORDS.c.pushed_by > "", RECORDS.c.pushed_by.icontains(word, autoescape=True)
    brought = select(RECORDS.c.key_id).where(*token)
    texts = dict.fromkeys((word, to_text(word)[1:-1]))  # as it is, and as it stands in JSON
    patterns = [*(f"%{_escaped(text)}%" for text in texts), *_patterns(word)]
    stands = (KEYS.c.text.like(pattern.lower(), escape="\\") for pattern in patterns)
    return or_(*stands, KEYS.c.id.in_(brought))


def _patterns(word: str) -> list[str]:
    """Of the JSON text of a problem, for a word that names sizes or options."""
    sizes = word.lower().split("x")
    if len(sizes) > 1 and all(size.isdecimal() for size in sizes):
        return ["%" + ",%".join(f'":{size}' for size in sizes) + end for end in (",%", "}%")]
    name, equals, value = (_escaped(to_text(part)[1:-1]) for part in word.partition("="))
    given = (value, f'"{value}"') if equals else ()
    return [f'%"{name}":{number}{end}' for number in given for end in (",%", "}%")]


def _escaped(text: str) -> str:
    """With nothing in it that LIKE takes for a pattern."""
    for character in "\\%_":
        text = text.replace(character, "\\" + character)
    return text


def _trial_s(connection: Connection, key_id: int) -> float | None:
    newest = select(TRIALS.c.created_at).where(TRIALS.c.key_id == key_id)
    newest = newest.order_by(TRIALS.c.id.desc()).limit(_RATED)
    moments = query.times(connection.scalars(newest))
    gaps = [(later - earlier).total_seconds() for later, earlier in pairwise(moments)]
    return fmean(going) if (going := [gap for gap in gaps if gap < _PAUSE_S]) else None
