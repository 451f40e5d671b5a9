"""What callers see while the database cannot be written to, and that nobody waits for others."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from autotune.domain.errors import StoreError
from autotune.domain.token import ADMIN
from autotune_db import SqlStore, open_store
from autotune_service.misses import MissBuffer
from tests.load.faults import (
    Fault,
    fill_disk,
    kill_all,
    kill_parent,
    kill_postgres,
    kill_process,
    lock_file,
    run_fault,
    small_disk,
)
from tests.load.jobs import kill_worker
from tests.load.samples import SPEC, key, lookup_body, push_body, result
from tests.servers.postgres import postgres_server
from tests.servers.service import Running, running, until

WAIT_S = 1.0


@pytest.fixture
def store(database: str) -> Iterator[SqlStore]:
    with open_store(database, create=True) as store:
        store.save_kernel(SPEC)
        store.save_record(result(key(0, 0), "first", mark=0).record)
        yield store


@pytest.fixture
def secret(store: SqlStore) -> str:
    return store.tokens.create("tests", ADMIN, None)[1]


@contextmanager
def locked(database: str) -> Iterator[None]:
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def push(service: Running, secret: str, number: int) -> tuple[int, dict[str, str], Any]:
    body = json.dumps(push_body([result(key(1, number), f"push {number}", mark=number)])).encode()
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    status, found, answer = service.raw("POST", "/v1/results", body, **headers)
    return status, found, json.loads(answer)


def test_a_locked_file_holds_up_nothing_that_reads(database: str, secret: str) -> None:
    """Sixteen pushes wait: more than there are threads."""
    with running(database, wait_s=WAIT_S) as service, ThreadPoolExecutor(16) as writers:
        with locked(database):
            pushes = [writers.submit(push, service, secret, number) for number in range(16)]
            time.sleep(WAIT_S / 5)
            reads = 0
            while not any(one.done() for one in pushes):
                assert service.post("/v1/lookup", lookup_body([key(0, 0)]))[0] == 200
                assert service.get("/v1/jobs")[0] == 200
                assert service.get("/v1/snapshots")[0] == 200
                reads += 1
            found = [one.result() for one in pushes]
        assert reads > 1, [one.result() for one in pushes]
        assert {status for status, _, _ in found} == {503}
        assert all(headers["retry-after"] == "5" for _, headers, _ in found)
        assert {body["error"]["code"] for _, _, body in found} == {"database_unavailable"}
        until(lambda: push(service, secret, 0)[0] == 200)  # two may still be at it


def test_a_database_file_that_is_gone_takes_no_push_and_is_not_ready(
    database: str, store: SqlStore, secret: str
) -> None:
    file = Path(database)
    with running(database) as service:
        assert push(service, secret, 0)[0] == 200
        file.rename(f"{database}.away")
        status, _, answer = push(service, secret, 1)
        assert (status, answer["error"]["code"]) == (503, "database_unavailable")
        until(lambda: service.get("/readyz")[0] == 503)
        assert service.get("/healthz")[0] == 200  # answers come from memory
        Path(f"{database}.away").rename(file)
        until(lambda: service.get("/readyz")[0] == 200)
        assert push(service, secret, 1)[0] == 200


def test_a_newer_snapshot_does_not_wait_for_what_was_missed(
    database: str, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = threading.Event()
    with (
        open_store(database, create=False) as own,
        running(database, opened=lambda: own) as service,
    ):
        monkeypatch.setattr(own, "save_misses", lambda _, **__: wait.wait(120))
        service.post("/v1/lookup", lookup_body([key(0, 77)]))
        time.sleep(0.2)
        store.save_record(result(key(0, 1), "second", mark=0).record)
        until(lambda: service.get("/healthz")[1]["snapshot"] == 2)
        wait.set()


def test_misses_are_written_again_whatever_went_wrong(
    database: str, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        open_store(database, create=False) as own,
        running(database, opened=lambda: own) as service,
    ):
        failed = threading.Event()

        def fail(_: Any, **__: Any) -> None:
            failed.set()
            raise ValueError("a bug")

        with monkeypatch.context() as broken:
            broken.setattr(own, "save_misses", fail)
            service.post("/v1/lookup", lookup_body([key(0, 77)]))
            assert failed.wait(120)
        until(lambda: bool(store.misses()))


def test_many_misses_leave_time_for_others() -> None:
    """10,000 in one transaction took 12 s, in which nothing could be pushed."""
    written: list[int] = []

    class Store:
        def save_misses(self, counts: dict[Any, int], *, known_only: bool) -> None:
            if len(written) == 3:
                written.append(0)
                raise StoreError("it is gone")
            written.append(len(counts))

    missed = MissBuffer(cast(SqlStore, Store()))
    for number in range(1_000):
        missed.count(key(1, number), "default")
    asyncio.run(missed.write())
    assert written == [200, 200, 200, 0]
    asyncio.run(missed.write())
    assert written == [200, 200, 200, 0, 200, 200]


def test_a_process_that_has_died_says_nothing_of_the_database(tmp_path: Path) -> None:
    says = (
        "from autotune_service.middleware.metrics import Meter; import sys; meter = Meter(); "
        "meter.database(up=sys.argv[1] == 'up'); print(meter.text().decode())"
    )
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for state, shown in (("down", "0.0"), ("up", "1.0")):
        command = [sys.executable, "-c", says, state]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        assert f"\nautotune_database_up {shown}\n" in done.stdout


def test_a_newer_snapshot_does_not_wait_for_an_older_one(
    database: str, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save_record(result(key(0, 1), "second", mark=0).record)
    wait, begun = threading.Event(), threading.Event()
    with (
        open_store(database, create=False) as own,
        running(database, opened=lambda: own) as service,
        ThreadPoolExecutor() as threads,
    ):
        real = own.snapshot_change

        def slow(number: int, since: int) -> Any:
            if number == 1:
                begun.set()
                wait.wait(120)
            return real(number, since)

        monkeypatch.setattr(own, "snapshot_change", slow)
        older = threads.submit(service.post, "/v1/lookup", lookup_body([key(0, 0)], snapshot=1))
        assert begun.wait(120)
        store.save_record(result(key(0, 2), "third", mark=0).record)
        until(lambda: service.get("/healthz")[1]["snapshot"] == 3)
        wait.set()
        assert older.result()[1]["snapshot"] == 1


def test_a_database_that_goes_right_after_a_push(
    database: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written was written."""
    with (
        open_store(database, create=False) as own,
        running(database, opened=lambda: own, refresh_s=60) as service,
    ):
        real = own.push

        def then_gone(*arguments: Any) -> Any:
            done = real(*arguments)
            monkeypatch.setattr(own, "snapshots", gone)
            return done

        def gone(*_: Any) -> Any:
            raise StoreError("it is gone")

        monkeypatch.setattr(own, "push", then_gone)
        status, _, body = push(service, secret, 0)
        assert (status, body.get("records")) == (200, 1), body


def _report(fault: Fault, folder: Path, database: str, **more: Any) -> None:
    (folder / "load").mkdir()
    found = run_fault(
        "fault", fault, folder / "load", database, **{"readers": 4, **more}, before_s=1, after_s=1
    )
    assert found.wrong == []
    assert found.acknowledged
    assert found.reads[200]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [kill_process, kill_all, kill_parent])
def test_a_killed_service_under_load(fault: Fault, tmp_path: Path) -> None:
    _report(fault, tmp_path, str(tmp_path / "faults.db"))


@pytest.mark.slow
def test_a_locked_file_under_load(tmp_path: Path) -> None:
    _report(
        partial(lock_file, seconds=3.0),
        tmp_path,
        str(tmp_path / "faults.db"),
        environment={"AUTOTUNE_SERVICE_WAIT_S": "1"},
    )


@pytest.mark.slow
def test_a_full_disk_under_load(tmp_path: Path) -> None:
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(small_disk(tmp_path))
        except OSError as error:
            pytest.skip(str(error))
        fault = partial(fill_disk, seconds=4.0)
        _report(fault, tmp_path, str(disk / "faults.db"), environment={"TMPDIR": str(disk)})


@pytest.mark.slow
def test_postgresql_killed_under_load(tmp_path: Path) -> None:
    with postgres_server() as server:
        _report(partial(kill_postgres, server=server), tmp_path, server.new_database())


@pytest.mark.slow
def test_a_worker_killed_in_its_job(tmp_path: Path) -> None:
    """Nobody else needs to be busy for as long as that takes."""
    _report(kill_worker, tmp_path, str(tmp_path / "faults.db"), writers=1, readers=1)
