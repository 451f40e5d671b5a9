"""Which database: the one place that reads a URL, a file path or the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from autotune.domain.errors import StoreError

VARIABLE = "AUTOTUNE_DATABASE_URL"
FILE_VARIABLE = "AUTOTUNE_DATABASE_URL_FILE"
_EXAMPLES = "give a file path, sqlite:///path or postgresql://user@host/name"
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database by its SQLAlchemy URL; ``path`` is its absolute file, None for a server."""

    url: URL
    path: Path | None

    def __str__(self) -> str:
        """For messages: the file, or the URL without its password and its options, which may hold
        another one."""
        return str(self.path or self.url.set(query={}).render_as_string(hide_password=True))

    @property
    def full_url(self) -> str:
        """Password included: for programs, never for messages."""
        return self.url.render_as_string(hide_password=False)


def parse_database(text: str | None = None, env: Mapping[str, str] = os.environ) -> Database:
    """The database that ``text`` names, else the environment (a URL, or a file that holds one),
    else the user's own file.

    Raises ``StoreError`` with one sentence.
    """
    if text:
        return _given(text)
    url, file = env.get(VARIABLE), env.get(FILE_VARIABLE)
    if url and file:
        raise StoreError(
            f"{VARIABLE} and {FILE_VARIABLE} are both set: keep the file, which is the one that "
            "hides the password, and unset the other"
        )
    if file:
        return _secret(Path(file))
    if url:
        return _given(url)
    return _file(Path(platformdirs.user_data_dir("pallas-autotune")) / "autotune.db")


def _given(text: str) -> Database:
    if text == ":memory:":
        text = "sqlite://"
    return _url(text) if ":/" in text else _file(Path(text).expanduser())


def _secret(file: Path) -> Database:
    """What a file holds is never shown: the whole of it may be a password."""
    name = f"the file {str(file)!r} in {FILE_VARIABLE}"
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or NUL in the path
        raise StoreError(f"{name} cannot be read: {_reason(error)}") from None
    if not text:
        raise StoreError(f"{name} is empty: it must hold the URL of the database")
    if "://" not in text or len(text.splitlines()) > 1:
        raise StoreError(f"{name} must hold one line, the URL of the database")
    return _url(text, shown=f"what {name} holds")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return "it is not text in UTF-8" if isinstance(error, UnicodeError) else "not a path"


def _url(text: str, shown: str | None = None) -> Database:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        shown = shown or repr(_masked(text))
        raise StoreError(f"{shown} is not a database URL: {_EXAMPLES}") from None
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
        raise StoreError("a database in memory would be lost with the process: give a file path")
    return _file(Path(url.database))


def _file(path: Path) -> Database:
    absolute = path.absolute()
    if "\0" in str(absolute):
        raise StoreError(f"the database path {str(absolute)!r} must not contain NUL")
    return Database(url=URL.create("sqlite", database=str(absolute)), path=absolute)


def _masked(text: str) -> str:
    """Without what may be a password."""
    scheme, separator, rest = text.partition("://")
    return f"{scheme}{separator}***@{rest.rpartition('@')[2]}" if "@" in rest else text
