"""Which database: the one place that reads a URL, a file path or the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from autotune.errors import StoreError

VARIABLE = "AUTOTUNE_DATABASE_URL"
_EXAMPLES = "give a file path, sqlite:///path or postgresql://user@host/name"
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database by its SQLAlchemy URL; ``path`` is its absolute file, None for a server."""

    url: URL
    path: Path | None

    def __str__(self) -> str:
        """For messages: the file, or the URL without its password."""
        return str(self.path) if self.path else self.url.render_as_string(hide_password=True)

    @property
    def full_url(self) -> str:
        """Password included: for programs, never for messages."""
        return self.url.render_as_string(hide_password=False)


def parse_database(text: str | None = None, env: Mapping[str, str] = os.environ) -> Database:
    """The database that ``text`` names, else the environment, else the user's own file.

    Raises ``StoreError`` with one sentence.
    """
    given = text or env.get(VARIABLE)
    if not given:
        return _file(Path(platformdirs.user_data_dir("pallas-autotune")) / "autotune.db")
    if given == ":memory:":
        raise _memory()
    return _url(given) if ":/" in given else _file(Path(given).expanduser())


def _url(text: str) -> Database:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError(f"{_masked(text)!r} is not a database URL: {_EXAMPLES}") from None
    if url.drivername in _POSTGRES:
        return Database(url=url.set(drivername="postgresql+psycopg"), path=None)
    if url.drivername in ("sqlite", "sqlite+pysqlite"):
        return _sqlite(url)
    raise StoreError(f"{url.drivername} databases are not supported: {_EXAMPLES}")


def _sqlite(url: URL) -> Database:
    if url.host or url.query:
        raise StoreError(
            f"{url.render_as_string()!r} is not the URL of a SQLite file: give a path, or "
            "sqlite:/// and the path (four slashes where it is absolute) without options"
        )
    if not url.database or url.database == ":memory:":
        raise _memory()
    return _file(Path(url.database))


def _file(path: Path) -> Database:
    absolute = path.absolute()
    if "\0" in str(absolute):
        raise StoreError(f"the database path {str(absolute)!r} must not contain NUL")
    return Database(url=URL.create("sqlite", database=str(absolute)), path=absolute)


def _memory() -> StoreError:
    return StoreError("a database in memory would be lost with the process: give a file path")


def _masked(text: str) -> str:
    """Without what may be a password."""
    scheme, found, rest = text.partition("://")
    return f"{scheme}{found}***@{rest.rpartition('@')[2]}" if "@" in rest else text
