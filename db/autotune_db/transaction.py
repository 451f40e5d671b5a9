"""One place that begins, commits, rolls back, and tries again when the connection broke."""

import time
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, Select
from sqlalchemy.exc import DBAPIError

from autotune_db.damage import readable
from autotune_db.engine import FileWatch, writing
from autotune_db.rows import AnyRow
from autotune_db.url import Database, may_work_again, translated

_RETRY_PAUSES_S = (0.3, 2.0)

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A", bound="Adapter")


class Transactions:
    """Runs each piece of work in a transaction of its own; foreign errors become ``StoreError``.

    Work that writes is told whether it is tried again: the connection may have broken after the
    commit, so it must then find out whether it is done already.
    """

    def __init__(self, engine: Engine, database: Database) -> None:
        self._engine = engine
        self._writing = writing(engine)
        self._database = database
        self._file = None if database.path is None else FileWatch(database.path)

    def close(self) -> None:
        self._engine.dispose()

    def read(self, work: Callable[[Connection], T]) -> T:
        return self._run(self._engine, lambda connection, _: work(connection))

    def write(self, work: Callable[[Connection, bool], T]) -> T:
        return self._run(self._writing, work)

    def _run(self, engine: Engine, work: Callable[[Connection, bool], T]) -> T:
        self._check_file()
        with translated(self._database):
            result = _tried(engine, work)
        self._check_file()
        return result

    def _check_file(self) -> None:
        if self._file is not None:
            self._file.check()


def _tried(engine: Engine, work: Callable[[Connection, bool], T]) -> T:
    attempt = 0
    while True:
        try:
            return _once(engine, work, attempt > 0)
        except DBAPIError as error:
            if attempt == len(_RETRY_PAUSES_S) or not may_work_again(error):
                raise
        time.sleep(_RETRY_PAUSES_S[attempt])
        attempt += 1


def _once(engine: Engine, work: Callable[[Connection, bool], T], again: bool) -> T:
    with engine.begin() as connection:
        return work(connection, again)


class Adapter:
    """The database's transactions and a clock: what every part of the store has.

    "Newest" and "last" mean saved last: clocks of several machines do not decide.
    """

    def __init__(self, work: Transactions, clock: Callable[[], datetime]) -> None:
        self._work = work
        self._clock = clock

    def _rows(self, statement: Select[*tuple[Any, ...]], make: Callable[[AnyRow], T]) -> list[T]:
        """What ``make`` makes of each row that a statement finds."""
        return self._work.read(lambda connection: list(readable(connection, statement, make)))

    def _first(self, statement: Select[*tuple[Any, ...]], make: Callable[[AnyRow], T]) -> T | None:
        return next(iter(self._rows(statement.limit(1), make)), None)


def reads(method: Callable[Concatenate[A, Connection, P], T]) -> Callable[Concatenate[A, P], T]:
    """A method that is one transaction, which it is given, and only reads."""

    @wraps(method)
    def run(adapter: A, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return adapter._work.read(lambda connection: method(adapter, connection, *args, **kwargs))

    return run


def writes(method: Callable[Concatenate[A, Connection, P], T]) -> Callable[Concatenate[A, P], T]:
    """A method that is one transaction, which it is given: committed before the caller goes on."""

    @wraps(method)
    def run(adapter: A, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return adapter._work.write(
            lambda connection, _: method(adapter, connection, *args, **kwargs)
        )

    return run
