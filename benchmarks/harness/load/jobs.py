"""Real workers with a real, cheap job, one of which is killed in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from autotune_db import open_store
from autotune_db.tables import KEYS, RECORDS, TRIALS
from benchmarks.harness.load.faults import Scene, job
from benchmarks.harness.load.service import wait_for

_TRIALS = 8
_JOB = {
    "kernel": "vector_add",
    "chip": "v5e",
    "trials": _TRIALS,
    "problem": {"dims": {"n": 1 << 20}, "dtype": "float32"},
}
_LEASE_S = 3.0
_LIMIT_S = 600.0  # only a hang takes as long


def kill_worker(scene: Scene) -> None:
    """Another one goes on with the job when the lease is over, with the trials that are there."""
    folder = Path(scene.service.folder)
    workers = [_start(scene.database, folder, name) for name in ("first", "second")]
    try:
        wait_for(lambda: _ask(scene) is not None, "a worker describes its kernels", _LIMIT_S)
        number = int((_ask(scene) or {})["number"])
        wait_for(lambda: job(scene, number)["progress"]["done"] >= 2, "two trials", _LIMIT_S)
        running = job(scene, number)
        victim = int(running["worker"].rpartition("-")[2])
        os.kill(victim, signal.SIGKILL)
        before, begun = _trials(scene.database), time.time()
        wait_for(
            lambda: job(scene, number)["state"] not in ("queued", "running"), "the end", _LIMIT_S
        )
        _judge(scene, job(scene, number), running["worker"], before)
        scene.notes.append(f"{len(before)} trials before, done {time.time() - begun:.0f} s later")
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(300)


def _start(database: str, folder: Path, name: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "autotune", "worker", "--db", database, "--name", name]
    command += ["--lease", str(_LEASE_S), "--poll", "0.3", "--compilers", "1"]
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def _ask(scene: Scene) -> dict[str, Any] | None:
    """The job, once the kernel is known; the same one however often."""
    status, _, body = scene.service.call("POST", "/v1/jobs", _JOB, scene.secret)
    return dict(json.loads(body)) if status in (200, 201) else None


def _trials(database: str) -> dict[int, str]:
    """When each was made, as it stands in the database."""
    mine = select(TRIALS.c.number, TRIALS.c.created_at).join(KEYS)
    with open_store(database, create=False) as store:
        rows = store._work.read(
            lambda s: list(s.execute(mine.where(KEYS.c.kernel == _JOB["kernel"])))
        )
    return {number: str(at) for number, at in rows}


def _judge(scene: Scene, ended: dict[str, Any], first: str, before: dict[int, str]) -> None:
    records = select(func.count()).select_from(RECORDS).join(KEYS)
    with open_store(scene.database, create=False) as store:
        count = store._work.read(lambda s: s.scalar(records.where(KEYS.c.kernel == _JOB["kernel"])))
    after = _trials(scene.database)
    if (ended["state"], ended["attempt"]) != ("done", 2) or ended["worker"] == first:
        scene.wrong.append(f"the job of a killed worker ended as {ended}")
    if count != 1:
        scene.wrong.append(f"the job of a killed worker has {count} records")
    if any(after.get(number) != at for number, at in before.items()) or len(after) != _TRIALS:
        scene.wrong.append(f"trials {before} became {after}")
