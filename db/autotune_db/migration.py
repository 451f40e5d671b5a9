"""Bringing the tables up to date, and refusing what this version does not know."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, Text, column, inspect, select, table, text

from autotune.domain.errors import StoreError
from autotune_db.engine import open_engine, use_write_ahead_log, writing
from autotune_db.failure import translated
from autotune_db.tables import METADATA, PREFIX
from autotune_db.url import Database, parse_database

if TYPE_CHECKING:
    from alembic.config import Config

VERSION_TABLE = PREFIX + "alembic_version"  # Optuna has an alembic_version in the same database
HEAD = "0014"  # kept here so that opening a database does not import Alembic
OLDEST = "0013"  # that is brought along

_SCRIPTS = Path(__file__).parent / "migrations"
_LOCK_NUMBER = 0x6175746F74756E65  # "autotune": PostgreSQL's advisory lock
_FIND_VERSION = select(column("version_num", Text)).select_from(table(VERSION_TABLE))
_one_thread = threading.Lock()  # Alembic keeps its context in globals


def upgrade(url: str | None = None) -> str:
    """Creates the database file and tables, or brings them up to date; the version in force.

    Safe while other processes do the same. Raises ``StoreError``.
    """
    with _opened(url, create=True) as (engine, database):
        bring_to_head(engine, database)
    return HEAD


def current(url: str | None = None) -> str | None:
    """The version of the tables at ``url``; None where there are none yet."""
    with _opened(url, create=False) as (engine, _), engine.connect() as connection:
        return _version(connection)


@contextmanager
def _opened(url: str | None, *, create: bool) -> Iterator[tuple[Engine, Database]]:
    database = parse_database(url)
    with translated(database):
        engine = open_engine(database, create=create)
        try:
            yield engine, database
        finally:
            engine.dispose()


def bring_to_head(engine: Engine, database: Database) -> None:
    if _known_version(engine, database) == HEAD:
        return
    if database.path is not None:
        use_write_ahead_log(database.path)
    with _one_thread, writing(engine).begin() as connection:
        _migrate(connection)


def require_head(engine: Engine, database: Database) -> None:
    version = _known_version(engine, database)
    if version is None:
        raise StoreError(f"there are no tuning results in {database} yet: run a search first")
    if version != HEAD:
        raise StoreError(f"{database} is of the older version {version}: run autotune db upgrade")


def config_for(connection: Connection) -> "Config":
    """Alembic's settings, without a file."""
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.scalar(_FIND_VERSION)


def _known_version(engine: Engine, database: Database) -> str | None:
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


def _migrate(connection: Connection) -> None:
    """Looks at the version again, where no other process can change it. New tables are made as they
    are today, without the steps that led there."""
    from alembic import command

    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})"))
    if _version(connection) is None:
        METADATA.create_all(connection)
        command.stamp(config_for(connection), "head")
    else:
        command.upgrade(config_for(connection), "head")
