"""A PostgreSQL server for benchmarks: that of the tests, in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]


class Postgres:
    """What the server is asked to do, a line each."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def new_database(self) -> str:
        return str(self._ask("new_database"))

    def as_installed(self) -> None:
        """What it writes is on the disk, and it keeps statistics: for timings."""
        self._ask("as_installed")

    @property
    def pid(self) -> int:
        return int(self._ask("pid"))

    def kill(self) -> None:
        self._ask("kill")

    def revive(self) -> None:
        self._ask("revive")

    def _ask(self, what: str) -> Any:
        assert self._process.stdin and self._process.stdout
        print(what, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """Stopped when its standard input ends."""
    command = [sys.executable, "-m", "tests.servers.postgres"]
    with subprocess.Popen(
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Postgres(process)
