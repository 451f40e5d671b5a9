"""Faults of a service under load, each with what must hold while it lasts and afterwards."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.load.check import check_database, check_lookups, check_snapshots
from benchmarks.harness.load.service import Load, Service, prepare, wait_for
from benchmarks.harness.postgres import Postgres

_MARGIN_S = 0.5
_DISK = "48m"


@dataclass
class Scene:
    """``dead``: when callers may get no answer; ``notes``: what was seen, for people."""

    service: Service
    secret: str
    database: str
    dead: list[tuple[float, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What became of one fault. Calls by status, 0 for no answer; times in seconds."""

    name: str
    reads: dict[int, int]
    writes: dict[int, int]
    longest_read_s: float
    longest_refusal_s: float
    acknowledged: int
    notes: list[str]
    wrong: list[str]


Fault = Callable[[Scene], None]


class NoDiskError(Exception):
    """No small disk can be mounted."""


def run_fault(
    name: str,
    fault: Fault,
    folder: Path,
    database: str,
    *,
    writers: int = 2,
    readers: int = 8,
    before_s: float = 2.0,
    after_s: float = 3.0,
    environment: dict[str, str] | None = None,
) -> Report:
    """The fault while others write and read, and all that must be true afterwards."""
    secret = prepare(database)
    service = Service(database, folder, environment=environment or {})
    scene = Scene(service, secret, database)
    service.start()
    try:
        with Load(
            service,
            secret,
            folder,
            seconds=240,
            writers=writers,
            readers=readers,
            write_pause_s=0.02,
        ) as load:
            time.sleep(before_s)
            fault(scene)
            _recovers(scene)
            time.sleep(after_s)
            load.stop()
            written, read = load.finish()
        checks = [
            check_database(database, written),
            check_lookups(service, database, written),
            check_snapshots(service, read["seen"], most=15),
        ]
    finally:
        service.stop()
    failed = [*read["failures"], *(failure for writer in written for failure in writer["failures"])]
    wrong = [*scene.wrong, *_wrong_calls(scene, failed), *read["wrong"]]
    wrong += [line for check in checks for line in check.wrong]
    wrong += [] if read["seconds"] else ["nothing was read"]
    wrong += [] if checks[0].counts["pushes acknowledged"] else ["no push was acknowledged"]
    return Report(
        name=name,
        reads=_statuses(read["failures"], sum(map(len, read["seconds"].values()))),
        writes=_statuses(
            [f for w in written for f in w["failures"]], sum(len(w["seconds"]) for w in written)
        ),
        longest_read_s=max((s for times in read["seconds"].values() for s in times), default=0),
        longest_refusal_s=max((failure[3] for failure in failed if failure[1]), default=0),
        acknowledged=checks[0].counts["pushes acknowledged"],
        notes=scene.notes,
        wrong=wrong,
    )


def _recovers(scene: Scene) -> None:
    """By itself: it takes a push, and says that it is ready."""
    begun = time.time()
    wait_for(lambda: scene.service.answers("/readyz"), "the service is ready again", 30)
    scene.notes.append(f"ready {time.time() - begun:.1f} s later")


def _wrong_calls(scene: Scene, failed: list[Any]) -> list[str]:
    wrong = []
    for begun, status, has_retry, seconds in failed:
        ended = begun + seconds
        if status == 0 and not any(
            ended > start - _MARGIN_S and begun < end + _MARGIN_S for start, end in scene.dead
        ):
            wrong.append(f"no answer after {seconds:.2f} s, while nothing was dead")
        elif status not in (0, 503):
            wrong.append(f"a call was answered with {status}")
        elif status == 503 and not has_retry:
            wrong.append("503 without Retry-After")
    return wrong


def _statuses(failed: list[Any], taken: int) -> dict[int, int]:
    """``taken``: calls with an answer, refused ones among them where they are readers'."""
    counts: dict[int, int] = {}
    for _, status, _, _ in failed:
        counts[status] = counts.get(status, 0) + 1
    return {200: taken, **counts}


def kill_process(scene: Scene) -> None:
    """The one with the most callers. The other goes on at once; uvicorn starts another."""
    victim = max(scene.service.answering(), key=lambda process: len(process.net_connections()))
    begun = time.time()
    victim.kill()
    scene.dead.append((begun, begun))

    def replaced() -> bool:
        living = scene.service.answering()
        return len(living) == 2 and victim.pid not in [process.pid for process in living]

    scene.notes.append(f"replaced after {wait_for(replaced, 'another process'):.1f} s")


def kill_all(scene: Scene) -> None:
    begun = time.time()
    scene.service.kill()
    time.sleep(1)
    scene.service.start()
    scene.dead.append((begun, time.time()))
    scene.notes.append(f"started again within {time.time() - begun - 1:.1f} s")


def kill_parent(scene: Scene) -> None:
    """Its processes must not live on: they would hold the port, with nobody to look after them."""
    begun, orphans = time.time(), scene.service.answering()
    os.kill(scene.service.process.pid, signal.SIGKILL)
    scene.service.process.wait(120)
    try:
        took = wait_for(lambda: not any(orphan.is_running() for orphan in orphans), "they end", 120)
        scene.notes.append(f"its processes ended after {took:.1f} s")
    except TimeoutError:
        scene.wrong.append("the processes of a killed service live on")
        for orphan in orphans:
            orphan.kill()
    scene.service.start()
    scene.dead.append((begun, time.time()))


def lock_file(scene: Scene, seconds: float = 12.0) -> None:
    """By another program, for longer than a call waits."""
    with closing(sqlite3.connect(scene.database, isolation_level=None, timeout=30)) as other:
        other.execute("BEGIN EXCLUSIVE")
        time.sleep(seconds)
        other.execute("ROLLBACK")
    scene.notes.append(f"locked for {seconds:g} s")


def kill_postgres(scene: Scene, server: Postgres, seconds: float = 6.0) -> None:
    """The postmaster, with ``kill -9``; it is down for longer than work is tried again."""
    server.kill()
    time.sleep(seconds)
    server.revive()
    scene.notes.append(f"down for {seconds:g} s and its recovery")


def fill_disk(scene: Scene, seconds: float = 8.0) -> None:
    """The disk of the database, and of the temporary files of the service; meanwhile one of its
    processes is killed, and another one must be able to start."""
    ballast = Path(scene.database).with_name("ballast")
    with ballast.open("wb", buffering=0) as file:
        _write_until_full(file, time.time() + seconds / 2)
        kill_process(scene)
        _write_until_full(file, time.time() + seconds / 2)
        young = [
            process
            for process in scene.service.answering()
            if time.time() - process.create_time() < 1
        ]
    if young:
        scene.wrong.append("processes that start on a full disk die")
    scene.notes.append(f"full for {seconds:g} s, a process killed meanwhile")
    ballast.unlink()


def _write_until_full(file: Any, deadline: float) -> None:
    """Again and again: what the database frees is taken too."""
    while time.time() < deadline:
        for size in (65536, 512):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size):
                    pass
        time.sleep(0.02)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A tmpfs of few MiB. Raises ``NoDiskError`` where it cannot be mounted: only root may."""
    place = folder / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoDiskError(f"no small disk can be mounted: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def job(scene: Scene, number: int) -> dict[str, Any]:
    status, _, body = scene.service.call("GET", f"/v1/jobs/{number}")
    answer = json.loads(body)
    return dict(answer) if status == 200 else {"state": f"status {status}", **answer}
