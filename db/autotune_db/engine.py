"""Connections. SQLite: write-ahead log, one writer at a time, waits for a lock. PostgreSQL.

The tables are brought up to date here, and what this version does not know is refused.
"""

import math
import os
import sqlite3
import threading
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool

from autotune.domain.errors import NoDatabaseError, StoreError
from autotune_db.tables import METADATA, PREFIX
from autotune_db.url import BUSY_TIMEOUT_S, Database, is_locked

if TYPE_CHECKING:
    from alembic.config import Config

VERSION_TABLE = PREFIX + "alembic_version"  # Optuna has an alembic_version in the same database
HEAD = "0014"  # kept here so that opening a database does not import Alembic
OLDEST = "0013"  # that is brought along

_SCRIPTS = Path(__file__).parent / "migrations"
_LOCK_NUMBER = 0x6175746F74756E65  # "autotune": PostgreSQL's advisory lock
_FIND_VERSION = sa.select(sa.column("version_num", sa.Text)).select_from(sa.table(VERSION_TABLE))
_one_thread = threading.Lock()  # Alembic keeps its context in globals


def bring_to_head(engine: sa.Engine, database: Database) -> None:
    if _known_version(engine, database) == HEAD:
        return
    if database.path is not None:
        use_write_ahead_log(database.path)
    with _one_thread, writing(engine).begin() as connection:
        _migrate(connection)


def require_head(engine: sa.Engine, database: Database) -> None:
    version = _known_version(engine, database)
    if version is None:
        raise NoDatabaseError(f"there are no tuning results in {database} yet: run a search first")
    if version != HEAD:
        raise NoDatabaseError(
            f"{database} is of the older version {version}: run autotune db upgrade"
        )


def config_for(connection: sa.Connection) -> "Config":
    """Alembic's settings, without a file."""
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _version(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.scalar(_FIND_VERSION)


def _known_version(engine: sa.Engine, database: Database) -> str | None:
    """None where there are no tables yet. Raises ``StoreError`` for one that is not opened here."""
    with engine.connect() as connection:
        version = _version(connection)
    if version is not None and version < OLDEST:
        raise StoreError(
            f"{database} is of version {version}; {OLDEST} is the oldest that is brought along: "
            "run autotune db upgrade of a checkout of 2026-11-23 first, or begin a new database"
        )
    if version is not None and version > HEAD:
        raise StoreError(
            f"{database} was written by a newer version of autotune (its tables are of version "
            f"{version}, this one knows {HEAD}): upgrade pallas-autotune"
        )
    return version


def _migrate(connection: sa.Connection) -> None:
    """Looks at the version again, where no other process can change it. New tables are made as they
    are today, without the steps that led there."""
    from alembic import command

    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})"))
    if _version(connection) is None:
        METADATA.create_all(connection)
        command.stamp(config_for(connection), "head")
    else:
        command.upgrade(config_for(connection), "head")


_WRITES = "autotune_writes"
_CONNECT_TIMEOUT_S = 10
_CACHE_KIB = 8 << 10  # of each connection, 120 MiB of a process with all its 15
_LOOK_S = 0.004  # between two looks at a lock
_LEAST_BYTES = 512  # of a database: one page


def open_engine(database: Database, *, create: bool, wait_s: float | None = None) -> sa.Engine:
    """An engine that may create the SQLite file, or must find it. Nothing is connected yet.

    ``wait_s``: how long a statement waits for a lock; None: ``BUSY_TIMEOUT_S`` for a file, any time
    on a server.
    """
    if database.path is None:
        return _postgres(database, wait_s)
    _check_file(database.path, create=create)
    patience_s = BUSY_TIMEOUT_S if wait_s is None else wait_s
    return _sqlite(database, database.path, create=create, wait_s=patience_s)


def writing(engine: sa.Engine) -> sa.Engine:
    """The same connections, for transactions that write: they take SQLite's lock at the start."""
    return engine.execution_options(**{_WRITES: True})


def use_write_ahead_log(path: Path) -> None:
    """Readers never wait for the writer. It is a property of the file and stays."""
    with closing(_connect(path, "rwc", BUSY_TIMEOUT_S)) as connection:
        if not _done_unlocked(connection, "PRAGMA journal_mode=WAL", BUSY_TIMEOUT_S):
            raise StoreError(f"the database file {path} stays locked by another program")


def _done_unlocked(connection: sqlite3.Connection, statement: str, limit_s: float) -> bool:
    """Run a statement as soon as no other process holds the lock; False where one does for too
    long. SQLite itself looks every 100 ms, too seldom to find a gap between the transactions of a
    process that has many to do, and not at all for some statements."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            connection.execute(statement)
            return True
        except sqlite3.OperationalError as error:
            if not is_locked(error):
                raise
        time.sleep(_LOOK_S)
    return False


def _postgres(database: Database, wait_s: float | None) -> sa.Engine:
    try:
        engine = sa.create_engine(
            database.url,
            pool_pre_ping=True,
            hide_parameters=True,  # of statements, in the texts of errors
            connect_args={
                "connect_timeout": _CONNECT_TIMEOUT_S,
                "client_encoding": "utf8",  # else texts of a database in SQL_ASCII are bytes
            },
        )
    except ModuleNotFoundError as error:
        raise StoreError(
            "PostgreSQL needs the psycopg package: pip install '…/pallas-autotune[postgres]'"
        ) from error
    if wait_s is not None:
        sa.event.listen(engine, "connect", partial(_limit_waiting, wait_s))
    return engine


def _limit_waiting(wait_s: float, connection: Any, _: object) -> None:
    connection.execute(f"SET lock_timeout = {math.ceil(wait_s * 1000)}")
    connection.commit()


def _sqlite(database: Database, path: Path, *, create: bool, wait_s: float) -> sa.Engine:
    engine = sa.create_engine(
        database.url,
        poolclass=QueuePool,
        hide_parameters=True,
        creator=lambda: _connect(path, "rwc" if create else _mode(path), wait_s),
    )
    sa.event.listen(engine, "begin", partial(_begin, wait_s))
    return engine


def _begin(wait_s: float, connection: sa.Connection) -> None:
    if not connection.get_execution_options().get(_WRITES):
        connection.exec_driver_sql("BEGIN")
        return
    raw: Any = connection.connection.dbapi_connection
    raw.execute("PRAGMA busy_timeout=0")
    try:
        with suppress(sqlite3.OperationalError):
            if _done_unlocked(raw, "BEGIN IMMEDIATE", wait_s):
                return
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # its error is one that callers know
    finally:
        raw.execute(f"PRAGMA busy_timeout={math.ceil(wait_s * 1000)}")


def _connect(path: Path, mode: str, wait_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}{_immutable(path) if mode == 'ro' else ''}",
        uri=True,
        timeout=wait_s,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
    except BaseException:
        connection.close()
        raise
    return connection


def _mode(path: Path) -> str:
    return "rw" if _writable(path) and _writable(path.parent) else "ro"


def _immutable(path: Path) -> str:
    """SQLite cannot share memory in a folder that it may not write to: then nobody writes."""
    is_shared = Path(f"{path}-wal").exists() or _writable(path.parent)
    return "" if is_shared else "&immutable=1"


class FileWatch:
    """Tells whether a database file is still the one that was opened. SQLite goes on with a file
    that was deleted or replaced: what is written then is nowhere."""

    def __init__(self, path: Path) -> None:
        self._path, self._identity = path, _identity(path)
        if self._identity is None:
            raise StoreError(f"there is no database at {path} any more")

    def check(self) -> None:
        """Raises ``StoreError``."""
        if _identity(self._path) != self._identity:
            raise StoreError(
                f"the database file {self._path} was deleted or replaced while it was in use: put "
                "it back, or start this program again to use what is there now"
            )


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode; None where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _check_file(path: Path, *, create: bool) -> None:
    """Refuses, before anything is written, what is no file or cannot become one."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder: name the database file in it")
    if not create and not path.exists():
        raise NoDatabaseError(f"there is no database at {path} yet: run a search first")
    if not _may_be_sqlite(path):
        raise StoreError(f"{path} is not a SQLite database: name another file")
    if create:
        _make_writable(path)


def _may_be_sqlite(path: Path) -> bool:
    """SQLite itself takes a file of a few bytes for an empty one, and overwrites it.

    The file is not opened here: closing it would drop the locks that other connections of this
    process hold on it. The next process to leave would take itself for the last one and throw the
    log away, and those connections would read an old state for ever.
    """
    try:
        size = path.stat().st_size
        return size == 0 or size >= _LEAST_BYTES
    except OSError:
        return True  # missing, or not readable: SQLite says so


def _make_writable(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for place in (path, path.parent):
            if place.exists() and not _writable(place):
                raise StoreError(
                    f"{place} is read-only: make it writable or name another database file"
                )
        if not path.exists():
            path.touch(mode=0o600)  # results of others, and digests of tokens, are in it
    except OSError as error:
        raise StoreError(
            f"{path} cannot be created: {error.strerror}: name another file"
        ) from error


def _writable(path: Path) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(path, os.W_OK, effective_ids=effective)
