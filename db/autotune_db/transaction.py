"""One place that begins, commits, rolls back, and tries again when the connection broke."""

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from autotune_db.engine import watch, writing
from autotune_db.failure import may_work_again, translated
from autotune_db.url import Database

_RETRY_PAUSES_S = (0.3, 2.0)

T = TypeVar("T")


class Transactions:
    """Runs each piece of work in a transaction of its own; foreign errors become ``StoreError``.

    Work that writes is told whether it is tried again: the connection may have broken after the
    commit, so it must then find out whether it is done already.
    """

    def __init__(self, engine: Engine, database: Database) -> None:
        self._engine = engine
        self._writing = writing(engine)
        self._database = database
        self._file = None if database.path is None else watch(database.path)

    def close(self) -> None:
        self._engine.dispose()

    def read(self, work: Callable[[Connection], T]) -> T:
        return self._run(self._engine, lambda connection, _: work(connection))

    def write(self, work: Callable[[Connection, bool], T]) -> T:
        return self._run(self._writing, work)

    def _run(self, engine: Engine, work: Callable[[Connection, bool], T]) -> T:
        self._check_file()
        done = self._tried(engine, work)
        self._check_file()
        return done

    def _check_file(self) -> None:
        if self._file is not None:
            self._file.check()

    def _tried(self, engine: Engine, work: Callable[[Connection, bool], T]) -> T:
        with translated(self._database):
            for attempt, pause_s in enumerate(_RETRY_PAUSES_S):
                try:
                    return _once(engine, work, attempt > 0)
                except DBAPIError as error:
                    if not may_work_again(error):
                        raise
                time.sleep(pause_s)
            return _once(engine, work, True)


def _once(engine: Engine, work: Callable[[Connection, bool], T], again: bool) -> T:
    with engine.begin() as connection:
        return work(connection, again)
