"""A real ``autotune serve`` in processes of its own, which can be killed, and what loads it."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from autotune.domain.token import ADMIN
from autotune_db import open_store
from benchmarks.harness.load.samples import SPEC, key, result

ROOT = Path(__file__).parents[3]
BASE = 200
"""Keys that are published before all load; the first of them are the shared ones."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_for(true: Callable[[], Any], what: str, limit_s: float = 300) -> float:
    """How long it took."""
    begun = time.monotonic()
    while not true():
        if time.monotonic() - begun > limit_s:
            raise TimeoutError(f"{what}: not within {limit_s:g} s")
        time.sleep(0.02)
    return time.monotonic() - begun


def prepare(database: str) -> str:
    """Fill an empty database with what is there before all load; the secret of a token."""
    with open_store(database, create=True) as store:
        base = [result(key(0, number), f"base {number}", mark=0) for number in range(BASE)]
        store.push([SPEC], base, by="before")
        return store.tokens.create("load", ADMIN, None)[1]


@dataclass
class Service:
    """``autotune serve`` on ``port``; what it logs goes to ``folder``."""

    database: str
    folder: Path
    workers: int = 2
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)

    def start(self) -> None:
        command = [sys.executable, "-m", "autotune", "serve", "--port", str(self.port)]
        command += ["--trust-writers"]  # what writers push is what readers ask for
        command += ["--db", self.database, "--workers", str(self.workers)]
        command += ["--reads-per-second", "1000000", "--writes-per-second", "1000000", *self.flags]
        with (self.folder / "service.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self.environment},
            )
        wait_for(
            lambda: self.answers() or self.process.poll() is not None, "the service starts", 300
        )
        if self.process.poll() is not None:
            raise RuntimeError((self.folder / "service.log").read_text()[-2000:])

    def call(
        self, method: str, path: str, data: Any = None, secret: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {secret}"} if secret else {}
        try:
            connection.request(method, path, data and json.dumps(data).encode(), headers)
            answer = connection.getresponse()
            return answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def answers(self, path: str = "/healthz") -> bool:
        try:
            return self.call("GET", path)[0] == 200
        except OSError:
            return False

    def answering(self) -> list[psutil.Process]:
        """The processes that answer, without the one that looks after them."""
        parent = psutil.Process(self.process.pid)
        if self.workers == 1:
            return [parent]
        return [child for child in parent.children() if _is_worker(child)]

    def kill(self) -> None:
        """All its processes, at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(120)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.kill()


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.Error:
        return False  # it has just ended


class Load:
    """Processes that write and read until their time is over, and what they have seen."""

    def __init__(
        self,
        service: Service,
        secret: str,
        folder: Path,
        *,
        seconds: float,
        writers: int,
        readers: int,
        pause_s: float = 0.01,
        write_pause_s: float = 0.0,
    ) -> None:
        self._stop = folder / "stop"
        common = {
            "port": service.port,
            "secret": secret,
            "seconds": seconds,
            "stop": str(self._stop),
        }
        kinds = [("writer", {"writer": n, "pause_s": write_pause_s}) for n in range(writers)]
        if readers:
            kinds.append(("reader", {"connections": readers, "pause_s": pause_s}))
        self._started, self._files = [], []
        for number, (script, options) in enumerate(kinds):
            file = folder / f"{script}-{number}.json"
            spec = json.dumps({**common, **options, "out": str(file)})
            command = [sys.executable, "-m", f"benchmarks.harness.load.{script}", spec]
            self._started.append(subprocess.Popen(command, cwd=ROOT))
            self._files.append(file)
        self._limit_s = seconds + 90

    def stop(self) -> None:
        """Ahead of time."""
        self._stop.touch()

    def finish(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """What each writer has seen, and the readers."""
        for process in self._started:
            if process.wait(self._limit_s):
                raise RuntimeError("a process of the load failed")
        reports = [json.loads(file.read_text()) for file in self._files]
        return [report for report in reports if "pushes" in report], next(
            (report for report in reports if "calls" in report), {}
        )

    def __enter__(self) -> "Load":
        """All have begun: on a busy machine a fault would be over before."""
        marks = [file.with_suffix(".begun") for file in self._files]
        wait_for(lambda: all(mark.exists() for mark in marks), "the load begins")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
            process.wait()
