"""The tables. Their names begin with ``autotune_`` because Optuna has ``trials`` of its own."""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeDecorator

_TEXT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False)
_SORTED = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False)


def to_text(data: Any) -> str:
    """Pure ASCII: PostgreSQL refuses NUL and lone surrogates as characters, not as escapes.

    Raises ``ValueError`` for NaN and infinity, which are no JSON.
    """
    return _TEXT.encode(data)


def from_text(text: str) -> Any:
    return json.loads(text)


def digest(data: Any) -> str:
    """32 hexadecimal digits, the same for the same names and values in any order of names."""
    return hashlib.blake2b(_SORTED.encode(data).encode(), digest_size=16).hexdigest()


PREFIX = "autotune_"
METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class UtcDateTime(TypeDecorator[datetime]):
    """Aware in and out, always UTC: SQLite keeps no zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _: Dialect) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, _: Dialect) -> datetime | None:
        if value is None or value.tzinfo is not None:
            return value.astimezone(UTC) if value else None
        return value.replace(tzinfo=UTC)

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        """What is no time stays as it is: it costs its row, not all that are read with it."""
        process: Any = super().result_processor(dialect, coltype)

        def read(value: Any) -> Any:
            try:
                return process(value)
            except (TypeError, ValueError):
                return value

        return read


_ID = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER numbers itself there


def _table(name: str, *parts: SchemaItem) -> Table:
    """With an ``id`` that is never given twice, not even after a row was deleted."""
    number = Column("id", _ID, primary_key=True)
    return Table(PREFIX + name, METADATA, number, *parts, sqlite_autoincrement=True)


def _column(name: str, kind: Any = Text, *more: Any, default: str | None = None) -> Column[Any]:
    """Never NULL. ``default``: of rows that are older than the column."""
    return Column(name, kind, *more, nullable=False, server_default=default)


def _texts(*names: str) -> list[Column[Any]]:
    return [_column(name) for name in names]


def _of(table: Table, name: str = "key_id") -> Column[Any]:
    return _column(name, _ID, ForeignKey(table.c.id))


KERNELS = _table(
    "kernels",
    *_texts("name", "fingerprint", "spec"),
    _column("created_at", UtcDateTime),
    UniqueConstraint("name", "fingerprint"),
)

# This order also serves "another toolchain" and "another shape" of the same kernel and chip.
IDENTITY = ("kernel", "fingerprint", "chip", "problem_digest", "jax", "jaxlib", "libtpu")

TEXT_PARTS = ("kernel", "chip", "jax", "libtpu", "compiler_options", "fingerprint", "problem")

KEYS = _table(
    "keys",
    *_texts("kernel", "fingerprint", "problem"),
    _column("problem_digest", String(32)),
    *_texts("chip", "jax", "jaxlib", "libtpu"),
    _column("compiler_options", default=""),
    _column("text", default=""),
    _column("trial_count", BigInteger, default="0"),
    Column("newest_trial", _ID),
    Column("best_us", Double),
    Column("default_us", Double),
    UniqueConstraint(*IDENTITY, name="uq_autotune_keys_all"),
    Index(None, "newest_trial"),
)
"""``problem`` keeps the order of the dimensions, ``problem_digest`` does not depend on it.
``libtpu`` has a digest of the ``compiler_options`` behind it where there are any.

``trial_count``, ``newest_trial``, ``best_us`` and ``default_us`` sum up its trials, so that
lists need not look at these: whoever writes trials calls ``query.sum_up``. ``text``: all that a
word may stand in, in lower case: to put it together for each search takes longer than the search.
"""

TRIALS = _table(
    "trials",
    _of(KEYS),
    _column("number", BigInteger),
    _column("config"),
    _column("config_digest", String(32)),
    *_texts("kind", "outcome"),
    Column("time_us", Double),
    _column("seconds", Double),
    _column("created_at", UtcDateTime),
    _column("pushed_by", default=""),
    UniqueConstraint("key_id", "number"),
    UniqueConstraint("key_id", "config_digest"),
    Index(None, "key_id", "id"),
    Index(None, "key_id", "time_us", "number"),
    Index(None, "key_id", "kind", "number"),
    Index(None, "kind"),
)
"""``time_us`` is copied out of the estimate of a trial that can win, for sorting."""

PROFILES = _table(
    "profiles",
    _column("trial_id", _ID, ForeignKey(TRIALS.c.id, ondelete="CASCADE")),
    _column("content"),
    _column("created_at", UtcDateTime),
    UniqueConstraint("trial_id"),
)
"""Of trials that were compiled again for it: where the time goes by line, with a picture."""

RECORDS = _table(
    "records",
    _of(KEYS),
    *_texts("config", "evidence"),
    _column("time_us", Double),
    _column("is_default", Boolean),
    _column("verified", Boolean),
    _column("trials", BigInteger),
    _column("method"),
    _column("created_at", UtcDateTime),
    _column("pushed_by", default=""),
    _column("claimed", Boolean, default="0"),
    _column("digest", String(32), default=""),
    Column("until_id", _ID),
    Index(None, "key_id", "claimed", "id", "until_id"),
    Index(None, "until_id", sqlite_where=text("until_id IS NOT NULL")),
    Index(None, "pushed_by", "key_id"),
)
"""Append-only. ``evidence`` holds the estimate, default, baseline and the texts as JSON.
``claimed``: it is the word of who pushed it; ``digest``: of its row and its key, empty in rows that
are older than this column; ``until_id``: the snapshot from which on it is in none
any more, because a worker has refused it. SQLite would look for all others by an index of these.
"""

AUDIT = _table(
    "audit",
    _column("created_at", UtcDateTime),
    *_texts("action", "change", "name"),
    Column("token", _ID),
    _column("address"),
)
"""Append-only: what was written, and by whom. ``token``: None for this machine's own work."""

CANDIDATES = _table(
    "candidates",
    _column("digest", String(32)),
    *_texts("record", "state", "finding"),
    _column("created_at", UtcDateTime),
    Column("decided_at", UtcDateTime),
    Column("record_id", _ID),
    UniqueConstraint("digest"),
    Index(None, "state", "id"),
    Index(None, "record_id"),
)
"""Pushed records that are to be checked, or were. ``digest``: of the record, but not of who brought
it. ``record_id``: its row; None where it was pushed to a service that kept none before the check.
"""

SEARCHES = _table(
    "searches",
    _of(KEYS),
    *_texts("space", "progress"),
    _column("over", Boolean),
    _column("heard_at", UtcDateTime),
    UniqueConstraint("key_id"),
)
"""What the last search of a key said of itself."""

CHECKS = _table(
    "checks",
    _of(KEYS),
    _of(KEYS, "target_id"),
    *_texts("verdict", "content"),
    _column("checked_at", UtcDateTime),
    _column("costs_us", Double, default="0"),
    UniqueConstraint("key_id", "target_id"),
    Index(None, "checked_at"),
    Index(None, "verdict", "costs_us"),
)
"""What became of the record of a key under the toolchain and chip of another, the target.
``costs_us`` is copied out of it for sorting; 0 where it is older than the column."""

KNOWN_CONFIGS = _table(
    "known_configs",
    _column("digest", String(32)),
    *_texts("kernel", "content"),
    _column("created_at", UtcDateTime),
    UniqueConstraint("digest"),
    Index(None, "kernel"),
)
"""Configs that tables of others have. ``digest``: of all but its time and where it was found, so
that the same table again adds nothing."""

CALIBRATIONS = _table(
    "calibrations",
    _column("digest", String(32)),
    *_texts("chip", "content"),
    _column("created_at", UtcDateTime),
    UniqueConstraint("digest"),
    Index(None, "chip"),
)
"""Programs that were estimated and timed. ``digest``: of the key and the config."""

WORKLOADS = _table(
    "workloads",
    *_texts("name", "content"),
    _column("tuned_at", UtcDateTime),
    UniqueConstraint("name"),
)
"""What was tuned together, as it was tuned last. ``content``: its problems, as JSON."""

MISSES = _table(
    "misses",
    _of(KEYS),
    _column("answer", default="default"),
    _column("count", _ID),
    _column("first_at", UtcDateTime),
    _column("last_at", UtcDateTime),
    UniqueConstraint("key_id", "answer"),
    Index(None, "count"),
)
"""One row for each key and each way in which the answer to it was not exact."""

SNAPSHOTS = _table(
    "snapshots",
    _of(RECORDS, "record_id"),
    Column("base_id", _ID),
    _column("floor", _ID, default="0"),
    _column("note", default=""),
    _column("made_by", default=""),
    _column("created_at", UtcDateTime),
)
"""Sets of records: those of ``base_id``, over them the newest record of each key with an id above
``floor`` up to ``record_id``, over them the pins in force; all this of what is proven, and once
more of what is claimed. Never changed, and records never are: so the set stays what it is, at the
cost of one row for each publication.

A roll-back is a snapshot whose base is the older one and whose floor is the newest record.
"""

PINS = _table(
    "pins",
    _of(KEYS),
    _of(RECORDS, "record_id"),
    _column("from_id", _ID),
    Column("until_id", _ID),
    Index(None, "key_id"),
)
"""A key has this record in the snapshots from ``from_id`` on, up to but not ``until_id``."""

JOBS = _table(
    "jobs",
    Column("open_digest", String(32)),
    *_texts("kernel", "fingerprint", "jax", "jaxlib", "libtpu", "request"),
    Column("candidate", _ID),
    _column("state"),
    _column("created_at", UtcDateTime),
    _column("created_by"),
    _column("attempt", BigInteger),
    _column("worker"),
    _column("claim", String(64), default=""),
    _column("cancel_wanted", Boolean),
    Column("started_at", UtcDateTime),
    Column("heard_at", UtcDateTime),
    Column("lapses_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    *_texts("progress", "message"),
    UniqueConstraint("open_digest"),
    Index(None, "state", "id"),
)
"""``open_digest`` is that of the request while the job is open: only one such job is open at a
time. Empty texts in ``fingerprint`` and versions: any. ``candidate``: which one to check, where
nothing is to be searched. ``lapses_at``: when the lease of the worker ends that has the job; NULL
where it took the job before this column was there. ``claim``: what reports of it must have; empty
where its worker is of an earlier version."""

JOB_LOGS = _table(
    "job_logs",
    _of(JOBS, "job_id"),
    _column("attempt", BigInteger),
    *_texts("earlier", "text"),
    Column("ended", Text),
    UniqueConstraint("job_id", "attempt"),
)
"""What workers have said; beside the jobs, so that lists of these read none. ``text`` is
overwritten; ``earlier``: of those that gave the job back in the same attempt, which did not count.
``ended``: an ``Ending``.
"""

TOKENS = _table(
    "tokens",
    *_texts("name", "role"),
    _column("digest", String(64)),
    _column("created_at", UtcDateTime),
    Column("expires_at", UtcDateTime),
    Column("revoked_at", UtcDateTime),
    UniqueConstraint("digest"),
)
"""``digest``: SHA-256 of the secret, which is as long and as random as the digest: so no slower
hash is needed."""
