"""The statements that several parts of the store share, each inside a transaction that its caller
commits."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    ScalarSelect,
    Select,
    Table,
    bindparam,
    func,
    select,
    text,
    update,
)

from autotune.domain.browsing import SearchedKey
from autotune.domain.key import Chip, KernelSpec, Key
from autotune.domain.problem import Problem
from autotune.domain.record import Record, Standing
from autotune_db import rows
from autotune_db.damage import readable
from autotune_db.rows import AnyRow
from autotune_db.tables import IDENTITY, KERNELS, KEYS, RECORDS, TRIALS

MAX_ID = 2**63 - 1
MOST_KERNELS = 10_000  # descriptions in all, when somebody else brings another one
AT_ONCE = 5_000  # values in one statement
T = TypeVar("T")
Query = Select[*tuple[Any, ...]]
S = TypeVar("S", bound=Query)

_PUBLISHING = 0x7075626C697368  # "publish": PostgreSQL's advisory lock


def read(
    connection: Connection, table: Table, number: int, make: Callable[[AnyRow], T]
) -> T | None:
    """Of the row with this number, where there is one that can be read."""
    wanted = select(table).where(table.c.id == number)
    return next(readable(connection, wanted, make), None) if 0 < number <= MAX_ID else None


def times(values: Iterable[datetime]) -> list[datetime]:
    """Those that are times: a damaged one is a text."""
    return [value for value in values if isinstance(value, datetime)]


def get(connection: Connection, table: Table, number: int | None) -> AnyRow | None:
    """The row with this id; None for a number that no row can have."""
    if number is None or not 0 < number <= MAX_ID:
        return None
    return connection.execute(select(table).where(table.c.id == number)).first()


def with_keys(table: Table) -> Query:
    """Rows that have a ``key_id``, each with all else that their keys are, but for the text."""
    of_key = [column for column in KEYS.c if column not in {KEYS.c.id, KEYS.c.text}]
    return select(*of_key, table).join(table, table.c.key_id == KEYS.c.id)


def only(kernel: str | None, chip: Chip | None) -> list[ColumnElement[bool]]:
    """Conditions on keys; None: any."""
    wanted = {KEYS.c.kernel: kernel, KEYS.c.chip: chip and chip.value}
    return [column == value for column, value in wanted.items() if value is not None]


def page(wanted: S, number: Any, before: int | None, limit: int) -> S:
    """The newest first; with ``before`` those with smaller numbers."""
    if before is not None:
        wanted = wanted.where(number < before)
    return wanted.order_by(number.desc()).limit(limit)


def ordered(
    wanted: S, order: str, columns: Mapping[str, ColumnElement[Any]], *usual: ColumnElement[Any]
) -> S:
    """By the column of this name, with ``-`` before it the largest first; then as usual."""
    column = columns.get(order.removeprefix("-"))
    if column is not None:
        wanted = wanted.order_by(column.desc() if order.startswith("-") else column)
    return wanted.order_by(*usual)


def versions(keys: FromClause) -> tuple[ColumnElement[str], ...]:
    """The columns of a toolchain, which ``rows.toolchain_from_columns`` takes."""
    return keys.c.jax, keys.c.jaxlib, keys.c.libtpu, keys.c.compiler_options


def numbered_record(row: AnyRow) -> tuple[int, Record]:
    """Of a row of ``with_keys(RECORDS)``."""
    return row.id, rows.record_from_row(row)


def is_postgresql(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"


def dialect(connection: Connection) -> Any:
    """The module of the one in use: to import another takes as long as all of our own."""
    return import_module(f"sqlalchemy.dialects.{connection.dialect.name}")


def upsert(
    connection: Connection, table: Table, by: dict[str, Any], values: dict[str, Any], **new: Any
) -> None:
    """One statement: a new row of all that is given, or ``values`` in the row that is there with
    the same ``by``."""
    statement = dialect(connection).insert(table).values({**by, **values, **new})
    connection.execute(statement.on_conflict_do_update(index_elements=list(by), set_=values))


def insert(connection: Connection, table: Table, values: dict[str, Any]) -> int | None:
    """The number of a new row; None when a unique constraint says that it is there already."""
    number: int | None = connection.scalar(_new_row(dialect(connection), table), values)
    return number


@cache
def _new_row(dialect: Any, table: Table) -> Any:
    """Made once: to make it anew takes longer than to run it."""
    statement = dialect.insert(table).on_conflict_do_nothing()
    return statement.returning(table.c.id)  # a count of rows is not reliable


def insert_new(connection: Connection, table: Table, values: Sequence[dict[str, Any]]) -> None:
    """Rows, but for those that are there already by a unique constraint."""
    if values:
        connection.execute(dialect(connection).insert(table).on_conflict_do_nothing(), values)


def batched(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """As ``itertools.batched`` of Python 3.12."""
    rest = iter(items)
    while part := tuple(islice(rest, size)):
        yield part


def in_parts(ids: Iterable[int]) -> Iterator[Sequence[int]]:
    """Sorted, as many as one statement may name."""
    return map(list, batched(sorted(ids), AT_ONCE))


def kernel_names(connection: Connection) -> set[tuple[str, str]]:
    described = connection.execute(select(KERNELS.c.name, KERNELS.c.fingerprint))
    return {(name, fingerprint) for name, fingerprint in described}


def add_kernels(connection: Connection, specs: Iterable[KernelSpec], now: datetime) -> int:
    """Keeps what somebody else says of kernels that nothing is known of yet, while there is room:
    each push and each snapshot reads them all. Gives how many there was none for."""
    known = kernel_names(connection)
    new = [spec for spec in specs if (spec.name, spec.fingerprint) not in known]
    room = max(MOST_KERNELS - len(known), 0)
    values = [{**rows.kernel_values(spec), "created_at": now} for spec in new[:room]]
    insert_new(connection, KERNELS, values)
    return len(new[room:])


def key_ids(connection: Connection, keys: Sequence[Key]) -> dict[Key, int]:
    """The numbers of keys; those that are new are written."""
    values = {key: rows.key_values(key) for key in sorted(set(keys), key=str)}  # no deadlocks
    ids = _find_keys(connection, values)
    insert_new(connection, KEYS, [of for key, of in values.items() if key not in ids])
    return ids if len(ids) == len(values) else _find_keys(connection, values)


def find_keys(connection: Connection, wanted: Iterable[Key]) -> dict[Key, int]:
    """The numbers of those that are there."""
    return _find_keys(connection, {key: rows.key_identity(key) for key in wanted})


def _find_keys(connection: Connection, values: Mapping[Key, Mapping[str, Any]]) -> dict[Key, int]:
    """By the values of their rows: one statement for each kernel and chip, which the index serves
    however many keys of these there are."""
    identities = {key: tuple(of[name] for name in IDENTITY) for key, of in values.items()}
    digests: dict[tuple[str, str, str], set[str]] = {}
    for kernel, source, chip, problem, *_ in identities.values():
        digests.setdefault((kernel, source, chip), set()).add(problem)
    ids: dict[tuple[Any, ...], int] = {}
    for place, problems in digests.items():
        of_kernel = dict(zip(IDENTITY, place, strict=False))
        for part in batched(problems, AT_ONCE):
            for number, *identity in connection.execute(_ALIKE, {**of_kernel, "problems": part}):
                ids[tuple(identity)] = number
    return {key: ids[identity] for key, identity in identities.items() if identity in ids}


_ALIKE = select(KEYS.c.id, *(KEYS.c[name] for name in IDENTITY)).where(
    *(KEYS.c[name] == bindparam(name) for name in IDENTITY[:3]),
    KEYS.c.problem_digest.in_(bindparam("problems", expanding=True)),
)
"""Keys of a kernel and chip by the digests of their problems: made once, as ``_new_row``."""


def find_key(connection: Connection, key: Key) -> int | None:
    """The number of a key that is there."""
    identity = rows.key_identity(key)
    return connection.scalar(_identified(tuple(identity)), identity)


def key_id(connection: Connection, key: Key) -> int:
    """The number of a key, which is written where it is new."""
    return key_ids(connection, [key])[key]


@cache
def _identified(columns: tuple[str, ...]) -> Select[int]:
    """Keys by their identity, which is given to it: made once, as ``_new_row``."""
    return select(KEYS.c.id).where(*(KEYS.c[name] == bindparam(name) for name in columns))


def id_of(key: Key) -> ScalarSelect[int]:
    identity = rows.key_identity(key)
    return _identified(tuple(identity)).params(identity).scalar_subquery()


def lock_keys(connection: Connection, ids: Iterable[int], *, shared: bool = False) -> None:
    """Until the transaction ends nobody else adds rows of these keys; with ``shared`` nobody else
    can keep it from adding some. In the order of their numbers: two could deadlock else. SQLite has
    one writer in any case."""
    if is_postgresql(connection):
        ordered = select(KEYS.c.id).order_by(KEYS.c.id)
        locked = ordered.with_for_update(read=shared, key_share=shared)
        for part in in_parts(set(ids)):
            connection.execute(locked.where(KEYS.c.id.in_(part)))


def one_publisher(connection: Connection) -> None:
    """Until the transaction ends nobody else publishes, so that records become visible in the
    order of their ids: a snapshot would change else. SQLite has one writer in any case."""
    if is_postgresql(connection):
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_PUBLISHING})"))


def has_record(of: Table) -> ColumnElement[bool]:
    """Whether anything was ever published for the key that a row of this table belongs to."""
    key = KEYS.c.id if of is KEYS else of.c.key_id
    return select(RECORDS.c.id).where(RECORDS.c.key_id == key).exists()


def _sums() -> dict[Any, Any]:
    of_key = TRIALS.c.key_id == KEYS.c.id
    at_default = select(TRIALS.c.time_us).where(of_key, TRIALS.c.number == 0)
    return {
        KEYS.c.trial_count: select(func.count()).where(of_key).scalar_subquery(),
        KEYS.c.newest_trial: select(func.max(TRIALS.c.id)).where(of_key).scalar_subquery(),
        KEYS.c.best_us: select(func.min(TRIALS.c.time_us)).where(of_key).scalar_subquery(),
        KEYS.c.default_us: at_default.scalar_subquery(),
    }


_SUM_UP = update(KEYS).values(_sums())  # made once, as ``_new_row``


def sum_up(connection: Connection, key_ids: Iterable[int]) -> None:
    """What the trials of some keys come to, beside these: in each transaction that changes them,
    which has locked the keys: it must see the trials of whoever was there before."""
    for part in in_parts(set(key_ids)):
        connection.execute(_SUM_UP.where(KEYS.c.id.in_(part)))


def latest_tried(
    connection: Connection,
    limit: int,
    kernel: str | None = None,
    chip: Chip | None = None,
    problem: Problem | None = None,
) -> list[SearchedKey]:
    """Keys that have trials, that of the newest trial first."""
    newest = KEYS.c.newest_trial
    conditions = [newest.is_not(None), *only(kernel, chip)]
    if problem is not None:
        conditions.append(KEYS.c.problem_digest == rows.problem_digest(problem))
    wanted = select(KEYS).where(*conditions).order_by(newest.desc())
    return tried(connection, wanted.limit(limit))


def tried(connection: Connection, wanted: Query) -> list[SearchedKey]:
    """What the trials of keys came to: counted from an index; of trials only the newest of each key
    is read."""
    keys = dict(readable(connection, wanted, lambda row: (row, rows.key_from_row(row))))
    kinds: dict[int, list[tuple[str, int]]] = {row.id: [] for row in keys}
    columns = (TRIALS.c.key_id, TRIALS.c.kind)
    counted = select(*columns, func.count()).where(TRIALS.c.key_id.in_(kinds)).group_by(*columns)
    for key_id, kind, count in connection.execute(counted):
        kinds[key_id].append((kind, count))
    newest = TRIALS.c.id.in_([row.newest_trial for row in keys if row.newest_trial])
    moments = select(TRIALS.c.key_id, TRIALS.c.created_at).where(newest)
    last_at = {key_id: at for key_id, at in connection.execute(moments) if times([at])}
    published = select(RECORDS.c.key_id, RECORDS.c.claimed).distinct()
    published = published.where(RECORDS.c.key_id.in_(kinds), RECORDS.c.until_id.is_(None))
    standings: dict[int, Standing] = {}
    for key_id, is_claimed in connection.execute(published.order_by(RECORDS.c.claimed.desc())):
        standings[key_id] = Standing.CLAIMED if is_claimed else Standing.PROVEN
    at_best = published.join(KEYS, KEYS.c.id == RECORDS.c.key_id).where(
        RECORDS.c.verified, RECORDS.c.claimed.is_(False), RECORDS.c.time_us == KEYS.c.best_us
    )
    verified = set(connection.scalars(at_best))
    return [
        SearchedKey(
            id=row.id,
            key=key,
            outcomes=tuple(sorted(kinds[row.id], key=lambda c: (-c[1], c[0]))),
            best_us=row.best_us,
            default_us=row.default_us,
            last_at=last_at.get(row.id),
            standing=standings.get(row.id),
            best_verified=row.id in verified,
        )
        for row, key in keys.items()
    ]
