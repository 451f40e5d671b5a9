"""The statements behind the store, each inside a session that its caller commits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, ScalarSelect, Select, func, select, text, update
from sqlalchemy.orm import Session

from autotune.domain.browsing import SearchedKey
from autotune.domain.chip import Chip
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.refusals import Refusals
from autotune.domain.trial import KeySummary
from autotune_db import rows
from autotune_db.tables import Base, KernelRow, KeyRow, MissRow, RecordRow, SpaceRow, TrialRow

MAX_ID = 2**63 - 1
MOST_KERNELS = 10_000  # descriptions in all, when somebody else brings another one
AT_ONCE = 5_000  # values in one statement
T = TypeVar("T")
S = TypeVar("S", bound="Select[*tuple[Any, ...]]")

_PUBLISHING = 0x7075626C697368  # "publish": PostgreSQL's advisory lock


def page(wanted: S, number: Any, before: int | None, limit: int) -> S:
    """The newest first; with ``before`` those with smaller numbers."""
    if before is not None:
        wanted = wanted.where(number < before)
    return wanted.order_by(number.desc()).limit(limit)


def is_postgresql(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"


def _dialect(session: Session) -> Any:
    """The module of the one in use: to import another takes as long as all of our own."""
    return import_module(f"sqlalchemy.dialects.{session.get_bind().dialect.name}")


def upsert(
    session: Session,
    table: type[Base],
    values: dict[str, Any],
    by: Sequence[str],
    again: dict[str, Any],
) -> None:
    """One statement: a new row, or ``again`` in the place of what the row with the same columns
    ``by`` has."""
    statement = _dialect(session).insert(table).values(values)
    session.execute(statement.on_conflict_do_update(index_elements=by, set_=again))


def insert(session: Session, table: type[Base], values: dict[str, Any]) -> bool:
    """False when a unique constraint says that it is there already."""
    statement = _dialect(session).insert(table).values(values).on_conflict_do_nothing()
    returning = statement.returning(table.__table__.c.id)  # a count of rows is not reliable
    return session.scalar(returning) is not None


def in_parts(ids: Iterable[int]) -> Iterator[Sequence[int]]:
    """Sorted, as many as one statement may name."""
    return map(list, batched(sorted(ids), AT_ONCE))


def insert_new(session: Session, table: type[Base], values: Sequence[dict[str, Any]]) -> None:
    """Rows, but for those that are there already by a unique constraint."""
    if values:
        session.execute(_dialect(session).insert(table.__table__).on_conflict_do_nothing(), values)


def kernel_names(session: Session) -> set[tuple[str, str]]:
    """Name and fingerprint of all that are described."""
    found = session.execute(select(KernelRow.name, KernelRow.fingerprint))
    return {(name, fingerprint) for name, fingerprint in found}


def add_kernels(session: Session, specs: Iterable[KernelSpec], now: datetime) -> int:
    """Keeps what somebody else says of kernels that nothing is known of yet, while there is room:
    each push and each snapshot reads them all. Gives how many there was none for."""
    known = kernel_names(session)
    new = [spec for spec in specs if (spec.name, spec.fingerprint) not in known]
    room = max(MOST_KERNELS - len(known), 0)
    values = [{**rows.kernel_values(spec), "created_at": now} for spec in new[:room]]
    insert_new(session, KernelRow, values)
    return len(new[room:])


def key_ids(session: Session, keys: Sequence[Key]) -> dict[Key, int]:
    """The numbers of keys; those that are new are written."""
    ordered = sorted(set(keys), key=str)  # no deadlocks
    found = find_keys(session, ordered)
    insert_new(session, KeyRow, [rows.key_values(key) for key in ordered if key not in found])
    return found if len(found) == len(ordered) else find_keys(session, ordered)


def find_keys(session: Session, wanted: Iterable[Key]) -> dict[Key, int]:
    """The numbers of those that are there."""
    columns = {key: rows.key_identity(key) for key in wanted}
    names = tuple(next(iter(columns.values()), ()))
    identities = {key: tuple(own.values()) for key, own in columns.items()}
    found: dict[tuple[Any, ...], int] = {}
    for part in batched(set(identities.values()), AT_ONCE):
        kernels = {own[names.index("kernel")] for own in part}
        digests = {own[names.index("problem_digest")] for own in part}
        same = KeyRow.kernel.in_(kernels), KeyRow.problem_digest.in_(digests)
        of_row = (getattr(KeyRow, name) for name in names)
        for number, *values in session.execute(select(KeyRow.id, *of_row).where(*same)):
            found[tuple(values)] = number
    return {key: found[own] for key, own in identities.items() if own in found}


def find_key(session: Session, key: Key) -> int | None:
    """The number of a key that is there."""
    return session.scalar(_find_key(key))


def key_id(session: Session, key: Key) -> int:
    """The number of a key, which is written where it is new."""
    found = find_key(session, key)
    if found is None:
        insert(session, KeyRow, rows.key_values(key))
        found = find_key(session, key)
    assert found is not None
    return found


def kernels(name: str | None = None, fingerprint: str | None = None) -> Select[KernelRow]:
    """The one saved last first."""
    query = select(KernelRow).order_by(KernelRow.id.desc())
    if name is not None:
        query = query.where(KernelRow.name == name)
    return query if fingerprint is None else query.where(KernelRow.fingerprint == fingerprint)


def save_refusals(session: Session, key: Key, refusals: Refusals) -> None:
    """In the place of what is there."""
    found = rows.space_values(refusals)
    values = {**found, "key_id": key_id(session, key)}
    upsert(session, SpaceRow, values, ["key_id"], found)


def batched(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """As ``itertools.batched`` of Python 3.12."""
    rest = iter(items)
    while part := tuple(islice(rest, size)):
        yield part


def refusals(session: Session, key_id: int | None) -> Refusals | None:
    row = session.scalar(select(SpaceRow).where(SpaceRow.key_id == key_id))
    return None if row is None else rows.refusals_from_row(row)


def trials(key: Key) -> Select[TrialRow]:
    """All of a key, by number."""
    return select(TrialRow).where(TrialRow.key_id == _id_of(key)).order_by(TrialRow.number)


def timed_trials(key: Key, most: int) -> Select[KeyRow, TrialRow]:
    """Of other keys of its kernel, as found on this side, those of its chip and toolchain first,
    then the newest; the large columns are read of those only."""
    same = (KeyRow.chip == key.chip.value) & (KeyRow.libtpu == key.toolchain.libtpu)
    others = KeyRow.id != func.coalesce(_id_of(key), 0)
    ids = select(TrialRow.id).join(KeyRow).where(KeyRow.kernel == key.kernel, others)
    ids = ids.where(TrialRow.time_us.is_not(None), TrialRow.pushed_by == "")
    nearest = ids.order_by(same.desc(), TrialRow.id.desc()).limit(most)
    found = select(KeyRow, TrialRow).join(TrialRow).where(TrialRow.id.in_(nearest))
    return found.order_by(TrialRow.id)


def numbered_records(kernel: str | None, chip: Chip | None) -> Select[KeyRow, RecordRow]:
    """All that were ever published."""
    return select(KeyRow, RecordRow).join(RecordRow).where(*only(kernel, chip))


def one_publisher(session: Session) -> None:
    """Until the transaction ends nobody else publishes, so that records become visible in the
    order of their ids: a snapshot would change else. SQLite has one writer in any case."""
    if is_postgresql(session):
        session.execute(text(f"SELECT pg_advisory_xact_lock({_PUBLISHING})"))


def count_misses(session: Session, counts: Mapping[tuple[Key, str], int], now: datetime) -> None:
    """Few statements for all, so that nobody waits for the database long, and one for each count,
    so that hosts that ask at once are all counted."""
    ids = key_ids(session, [key for key, _ in counts])
    values = [
        {"key_id": ids[key], "answer": answer, "count": n, "first_at": now, "last_at": now}
        for (key, answer), n in counts.items()
    ]
    if values:
        new = _dialect(session).insert(MissRow.__table__)
        again = {"count": MissRow.count + new.excluded.count, "last_at": new.excluded.last_at}
        counted = new.on_conflict_do_update(index_elements=["key_id", "answer"], set_=again)
        values.sort(key=itemgetter("key_id", "answer"))  # else two could deadlock
        session.execute(counted, values)


def missed() -> Select[KeyRow, MissRow]:
    """Keys without a record, the most wanted first."""
    published = select(RecordRow.id).where(RecordRow.key_id == MissRow.key_id).exists()
    query = select(KeyRow, MissRow).join(MissRow, MissRow.key_id == KeyRow.id)
    return query.where(~published).order_by(MissRow.count.desc(), MissRow.id)


def sum_up(session: Session, key_ids: Iterable[int]) -> None:
    """What the trials of some keys come to, beside these: in each transaction that changes them."""
    of_key = TrialRow.key_id == KeyRow.id
    sums = {
        KeyRow.newest_trial: select(func.max(TrialRow.id)).where(of_key).scalar_subquery(),
        KeyRow.best_us: select(func.min(TrialRow.time_us)).where(of_key).scalar_subquery(),
        KeyRow.default_us: select(TrialRow.time_us)
        .where(of_key, TrialRow.number == 0)
        .scalar_subquery(),
    }
    for part in in_parts(set(key_ids)):
        mine = KeyRow.id.in_(part)
        # PostgreSQL: whoever comes second must see the trials of the first before it sums them up.
        locked = select(KeyRow.id).where(mine).order_by(KeyRow.id)
        session.execute(locked.with_for_update(key_share=True)).all()
        summed = update(KeyRow).where(mine).values(sums)
        session.execute(summed, execution_options={"synchronize_session": False})


def tried_keys(kernel: str | None, chip: Chip | None) -> Select[KeyRow]:
    """Those that have trials, that of the newest trial first."""
    newest = KeyRow.newest_trial
    return select(KeyRow).where(newest.is_not(None), *only(kernel, chip)).order_by(newest.desc())


def summaries(session: Session, keys: Iterable[KeyRow]) -> list[KeySummary]:
    """What ``tried`` says of keys, and whether anything was ever published for them."""
    found = tried(session, keys)
    ids = [one.id for one in found]
    recorded = set(session.scalars(select(RecordRow.key_id).where(RecordRow.key_id.in_(ids))))
    return [
        KeySummary(
            key=one.key,
            outcomes=one.outcomes,
            best_us=one.best_us,
            default_us=one.default_us,
            has_record=one.id in recorded,
            last_at=one.last_at,
        )
        for one in found
        if one.last_at is not None
    ]


def tried(session: Session, keys: Iterable[KeyRow]) -> list[SearchedKey]:
    """Counted from an index; of trials only the newest of each key is read."""
    wanted = list(keys)
    kinds: dict[int, list[tuple[str, int]]] = {key.id: [] for key in wanted}
    columns = (TrialRow.key_id, TrialRow.kind)
    counted = select(*columns, func.count()).where(TrialRow.key_id.in_(kinds)).group_by(*columns)
    for key_id, kind, count in session.execute(counted):
        kinds[key_id].append((kind, count))
    newest = TrialRow.id.in_([key.newest_trial for key in wanted if key.newest_trial])
    moments = select(TrialRow.key_id, TrialRow.created_at).where(newest)
    last_at = {key_id: at for key_id, at in session.execute(moments)}  # noqa: C416, typed
    return [
        SearchedKey(
            id=key.id,
            key=rows.key_from_row(key),
            outcomes=tuple(sorted(kinds[key.id], key=lambda c: (-c[1], c[0]))),
            best_us=key.best_us,
            default_us=key.default_us,
            last_at=last_at.get(key.id),
        )
        for key in wanted
    ]


def only(kernel: str | None, chip: Chip | None) -> list[ColumnElement[bool]]:
    """Conditions on keys; None: any."""
    wanted = {KeyRow.kernel: kernel, KeyRow.chip: chip and chip.value}
    return [column == value for column, value in wanted.items() if value is not None]


def _find_key(key: Key) -> Select[int]:
    identity = rows.key_identity(key).items()
    return select(KeyRow.id).where(*(getattr(KeyRow, name) == value for name, value in identity))


def _id_of(key: Key) -> ScalarSelect[int]:
    return _find_key(key).scalar_subquery()
