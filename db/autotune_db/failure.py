"""The one place where errors of the database and its drivers become a ``StoreError``.

What is not known here is a bug and goes up unchanged.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc
from sqlalchemy.exc import DBAPIError

from autotune.domain.errors import StoreError, UnstorableError
from autotune_db.url import VARIABLE, Database

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
    "FULL": "the disk that holds {db} is full: make room and run the same command again",
    "IOERR": "the disk that holds {db} fails to read or write: {detail}",
    "TOOBIG": "a text is too long for the database {db}: {detail}",
}

_POSTGRES = {
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

_NO_TABLES = "{db} lacks tables ({detail}): run autotune db upgrade"
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
        kind = UnstorableError if template is _POSTGRES["22"] else StoreError
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
        if name == "ERROR" and _detail(error).startswith(("no such table", "no such column")):
            return _NO_TABLES
        return _SQLITE.get(name)
    state = getattr(error.orig, "sqlstate", None)
    if state is None:
        return _unnamed(error)
    if state in ("42P01", "42703"):
        return _NO_TABLES
    return _POSTGRES.get(state) or _POSTGRES.get(state[:2])


def _unnamed(error: DBAPIError) -> str | None:
    """psycopg names no state when a connection cannot be made, or a text holds NUL."""
    if 'database "' in _detail(error) and _detail(error).endswith("does not exist"):
        return _POSTGRES["3D000"]
    if _is_operational(error):
        return _UNREACHABLE
    return _POSTGRES["22"] if type(error.orig).__name__ == "DataError" else None


def _is_operational(error: DBAPIError) -> bool:
    return any(cls.__name__ == "OperationalError" for cls in type(error.orig).__mro__)


def _sqlite_name(error: BaseException | None) -> str:
    """``CANTOPEN`` of ``SQLITE_CANTOPEN_ISDIR``; empty for an error that is not SQLite's."""
    return str(getattr(error, "sqlite_errorname", "")).removeprefix("SQLITE_").partition("_")[0]


def _detail(error: DBAPIError) -> str:
    """The first line of the driver's own text."""
    lines = str(error.orig).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error.orig).__name__
