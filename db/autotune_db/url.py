"""Which database: the one place that reads a URL, a file path or the environment.

And the one place where errors of the database and its drivers become a ``StoreError``. What is not
known here is a bug and goes up unchanged.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from sqlalchemy import exc
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from autotune.domain.errors import StoreError, UnstorableError

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
        why = "it is not text in UTF-8" if isinstance(error, UnicodeError) else "not a path"
        if isinstance(error, OSError) and error.strerror:
            why = error.strerror.lower()
        raise StoreError(f"{name} cannot be read: {why}") from None
    if not text:
        raise StoreError(f"{name} is empty: it must hold the URL of the database")
    if "://" not in text or len(text.splitlines()) > 1:
        raise StoreError(f"{name} must hold one line, the URL of the database")
    return _url(text, shown=f"what {name} holds")


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


BUSY_TIMEOUT_S = 60

_ELSEWHERE = f"or name another database in {VARIABLE}"

_SQLITE = {
    "READONLY": f"the database file {{db}} is read-only: make it writable, {_ELSEWHERE}",
    "NOTADB": f"{{db}} is not a SQLite database: restore it from a backup, {_ELSEWHERE}",
    "CORRUPT": f"the database file {{db}} is damaged: restore it from a backup, {_ELSEWHERE}",
    "CANTOPEN": "the database file {db} cannot be opened: its folder must exist, and both must be "
    "readable and writable for you",
    "PERM": "the database file {db} may not be opened by this user: change its permissions",
    "BUSY": "the database file {db} stays locked by another program: stop that program or "
    "try again later",
    "FULL": "the disk that holds {db} is full: make room and run the same command again. Where it "
    "is not, a table has no numbers left: autotune db check says which",
    "IOERR": "the disk that holds {db} fails to read or write: {detail}",
    "TOOBIG": "a text is too long for the database {db}: {detail}",
}

_POSTGRES_CODES = {
    "08": "the connection to {db} broke: {detail}",
    "22": "{db} cannot hold a text or number that was given: {detail}",
    "25006": f"{{db}} is read-only: connect to the primary server, {_ELSEWHERE}",
    "28": f"{{db}} refuses this user: {{detail}}; correct the user or password, {_ELSEWHERE}",
    "3D000": "{db} does not exist: create the database first (createdb)",
    "40": "{db} undid the work, for which other work was in the way: try again",
    "42501": "{db} does not allow this user to do that: {detail}",
    "55P03": "other work holds a lock in {db} for too long: try again later",
    "53": "{db} is out of resources: {detail}",
    "57": "{db} is shutting down or cancelled the work: {detail}",
    "58": "{db} has a failing disk: {detail}",
}

_OTHER_TABLES = (
    "{db} has not the tables of this version ({detail}): they are damaged, or an unreleased "
    "version made them. Put back a copy, or export with that version and begin a new database"
)
_NO_TABLES = "no such (table|column)| has no column named |ON CONFLICT clause does not match"
_UNREACHABLE = f"cannot reach {{db}}: {{detail}}; start the server, {_ELSEWHERE}"
_UNDONE_STATES = ("08", "40", "57P0")


@contextmanager
def translated(database: Database) -> Iterator[None]:
    """Foreign errors inside leave as a ``StoreError`` of one sentence."""
    try:
        yield
    except DBAPIError as error:
        template = _template(error)
        if template is None:
            raise
        kind = UnstorableError if template is _POSTGRES_CODES["22"] else StoreError
        raise kind(template.format(db=database, detail=_detail(error))) from error
    except exc.TimeoutError as error:
        raise StoreError(f"no connection to {database} was free: too many threads") from error
    except UnicodeEncodeError as error:
        raise UnstorableError(f"{error.object!r} is not valid text: use UTF-8") from error


def may_work_again(error: DBAPIError) -> bool:
    """Whether the server went away, is restarting, or undid a transaction that others were in the
    way of (deadlocks): so that trying again makes sense."""
    if error.connection_invalidated:
        return True
    state = getattr(error.orig, "sqlstate", "")
    return _is_operational(error) and (state is None or str(state).startswith(_UNDONE_STATES))


def is_locked(error: BaseException) -> bool:
    return _sqlite_name(error) in ("BUSY", "LOCKED")


def _template(error: DBAPIError) -> str | None:
    if name := _sqlite_name(error.orig):
        if re.search(_NO_TABLES, _detail(error)):
            return _OTHER_TABLES
        return _SQLITE.get(name)
    state = getattr(error.orig, "sqlstate", None)
    if state is None:
        return _unnamed(error)
    if state in ("42P01", "42703", "42P10"):
        return _OTHER_TABLES
    return _POSTGRES_CODES.get(state) or _POSTGRES_CODES.get(state[:2])


def _unnamed(error: DBAPIError) -> str | None:
    """psycopg names no state when a connection cannot be made, or a text holds NUL."""
    if 'database "' in _detail(error) and _detail(error).endswith("does not exist"):
        return _POSTGRES_CODES["3D000"]
    if _is_operational(error):
        return _UNREACHABLE
    return _POSTGRES_CODES["22"] if type(error.orig).__name__ == "DataError" else None


def _is_operational(error: DBAPIError) -> bool:
    return any(cls.__name__ == "OperationalError" for cls in type(error.orig).__mro__)


def _sqlite_name(error: BaseException | None) -> str:
    """``CANTOPEN`` of ``SQLITE_CANTOPEN_ISDIR``; empty for an error that is not SQLite's."""
    return str(getattr(error, "sqlite_errorname", "")).removeprefix("SQLITE_").partition("_")[0]


def _detail(error: DBAPIError) -> str:
    """The first line of the driver's own text."""
    lines = str(error.orig).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error.orig).__name__
