"""What callers see while the database cannot be written to, and that nobody waits for others."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from autotune.answering.push import result_to_data
from autotune.domain.codec import to_data
from autotune.domain.errors import StoreError
from autotune.domain.store import KeyResult
from autotune.domain.token import ADMIN
from autotune_db import SqlStore, open_store
from autotune_service import errors as trouble
from autotune_service.app import MissBuffer
from tests.samples.matching import SPEC, question, record
from tests.servers.service import publish, running, until

ROOT = Path(__file__).parents[2]
WAIT_S = 1.0


@pytest.fixture
def store(database):
    with open_store(database, create=True) as store:
        store.save_kernel(SPEC)
        store.save_record(record(question()))
        yield store


@pytest.fixture
def used(database, store):
    """That of the service, which a test may break."""
    with open_store(database, create=False) as used:
        yield used


@pytest.fixture
def secret(store):
    return store.tokens.create("tests", ADMIN, None)[1]


@contextmanager
def locked(database):
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def push(service, secret, number):
    result = KeyResult(record=record(question(m=8 * (number + 1))))
    body = json.dumps({"kernels": [to_data(SPEC)], "results": [result_to_data(result)]}).encode()
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    status, content, answer = service.raw("POST", "/v1/results", body, **headers)
    return status, content, json.loads(answer)


def test_a_locked_file_holds_up_nothing_that_reads(database, secret):
    """Sixteen pushes wait: more than there are threads."""
    with running(database, wait_s=WAIT_S) as service, ThreadPoolExecutor(16) as writers:
        with locked(database):
            pushes = [writers.submit(push, service, secret, number) for number in range(16)]
            time.sleep(WAIT_S / 5)
            reads = 0
            while not any(waiting.done() for waiting in pushes):
                service.lookup(question())
                assert service.get("/v1/jobs")[0] == 200
                assert service.get("/v1/snapshots")[0] == 200
                reads += not any(waiting.done() for waiting in pushes)
            result = [waiting.result() for waiting in pushes]
        assert reads, [waiting.result() for waiting in pushes]
        assert {status for status, _, _ in result} == {503}
        assert all(headers["retry-after"] == "5" for _, headers, _ in result)
        assert {body["error"]["code"] for _, _, body in result} == {"database_unavailable"}
        assert "last write" in service.get("/readyz")[1]["troubles"][0]
        until(lambda: push(service, secret, 0)[0] == 200)  # two may still be at it
        assert service.get("/readyz")[1]["troubles"] == []


def test_a_database_file_that_is_gone_takes_no_push_and_is_not_ready(database, store, secret):
    file = Path(database)
    with running(database) as service:
        assert push(service, secret, 0)[0] == 200
        file.rename(f"{database}.away")
        status, _, answer = push(service, secret, 1)
        assert (status, answer["error"]["code"]) == (503, "database_unavailable")
        until(lambda: service.get("/readyz")[0] == 503)
        assert "cannot be read" in service.get("/readyz")[1]["troubles"][0]
        assert service.get("/healthz")[0] == 200  # answers come from memory
        Path(f"{database}.away").rename(file)
        until(lambda: service.get("/readyz")[0] == 200)
        assert push(service, secret, 1)[0] == 200
        assert service.get("/readyz")[1]["troubles"] == []


def test_misses_are_written_again_whatever_went_wrong(used, store, monkeypatch):
    with running("", opened=lambda: used) as service:
        failed = threading.Event()

        def fail(_, **__):
            failed.set()
            raise ValueError("a bug")

        with monkeypatch.context() as broken:
            broken.setattr(used, "save_misses", fail)
            service.lookup(question(77))
            assert failed.wait(120)
        until(lambda: bool(store.misses()))


def test_many_misses_leave_time_for_others():
    """10,000 in one transaction took 12 s, in which nothing could be pushed."""
    written = []

    class Store:
        def save_misses(self, counts, *, known_only):
            if len(written) == 3:
                written.append(0)
                raise StoreError("it is gone")
            written.append(len(counts))

    missed = MissBuffer(cast(SqlStore, Store()))
    for number in range(1_000):
        missed.count(question(number + 1), "default")
    asyncio.run(missed.write())
    assert written == [200, 200, 200, 0]
    asyncio.run(missed.write())
    assert written == [200, 200, 200, 0, 200, 200]


def test_a_process_that_has_died_says_nothing_of_the_database(tmp_path):
    says = (
        "from autotune_service.middleware.metrics import DATABASE_UP, CallMeter; import sys; "
        "DATABASE_UP.set(sys.argv[1] == 'up'); print(CallMeter().text().decode())"
    )
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for state, shown in (("down", "0.0"), ("up", "1.0")):
        command = [sys.executable, "-c", says, state]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        assert f"\nautotune_database_up {shown}\n" in done.stdout


def test_a_newer_snapshot_does_not_wait_for_an_older_one(used, store, monkeypatch):
    store.save_record(record(question(256)))
    wait, begun = threading.Event(), threading.Event()
    with running("", opened=lambda: used) as service, ThreadPoolExecutor() as threads:
        real = used.snapshot_change

        def slow(number, since, claimed):
            if number == 1:
                begun.set()
                wait.wait(120)
            return real(number, since, claimed=claimed)

        monkeypatch.setattr(used, "snapshot_change", slow)
        older = threads.submit(service.lookup, question(), snapshot=1)
        assert begun.wait(120)
        publish(service, store, record(question(512)))
        wait.set()
        assert older.result()[0] == 1


def test_a_database_that_goes_right_after_a_push(used, secret, monkeypatch):
    """What was written was written."""
    with running("", opened=lambda: used, refresh_s=60) as service:
        real = used.push

        def then_gone(*arguments):
            done = real(*arguments)
            monkeypatch.setattr(used, "snapshots", gone)
            return done

        def gone(*_):
            raise StoreError("it is gone")

        monkeypatch.setattr(used, "push", then_gone)
        status, _, body = push(service, secret, 0)
        assert (status, body.get("records")) == (200, 1), body


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        "a process of the service is killed",
        "the whole service is killed",
        "the parent of its processes is killed",
        "the SQLite file is locked",
        "the disk is full",
        "PostgreSQL is killed",
        "a worker is killed in its job",
    ],
)
def test_a_fault_under_load_loses_nothing(fault):
    """The exit code says whether anything was lost, doubled, or answered otherwise than before."""
    load = ("1", "1") if "worker" in fault else ("2", "4")  # a job is slow where others are busy
    command = [sys.executable, "-m", "benchmarks", "service_faults", "--only", fault]
    done = subprocess.run(
        [*command, "--writers", load[0], "--readers", load[1]],
        cwd=ROOT,
        env={**os.environ, "AUTOTUNE_SERVICE_WAIT_S": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode == 2:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_clock_that_is_wrong_by_400_days_loses_nothing(database, secret, monkeypatch):
    """Newest means saved last: what is published meanwhile is answered, and so is what was before
    and comes after."""
    ahead = timedelta(0)

    def opened():
        return open_store(database, clock=lambda: datetime.now(UTC) + ahead)

    snapshots = []
    with running(database, opened=opened, trust_writers=True, recheck=False) as service:
        for number, days in enumerate((0, 400, -400, 0)):
            ahead = timedelta(days=days)
            status, _, said = push(service, secret, number)
            assert (status, said["records"]) == (200, 1), said
            snapshots.append(said["snapshot"])
            until(lambda: service.get("/readyz")[1]["snapshot"] == snapshots[-1])
            troubles = service.get("/readyz")[1]["troubles"]
            assert len(troubles) == (days == 400) and all("newest snapshot" in t for t in troubles)
        ready = service.get("/readyz")
        was_set = trouble.booted_at() - timedelta(days=400)
        monkeypatch.setattr(trouble, "booted_at", lambda: was_set)
        assert "was set while" in service.get("/readyz")[1]["troubles"][0]
        with open_store(database) as store:
            published = {each.key for _, each in store.published()}
        answers = service.lookup(*published)[1]
    assert snapshots == sorted(set(snapshots))
    assert (ready[0], ready[1]["went_back_at"]) == (200, None)
    assert len(published) >= 4
    assert {answer["match"] for answer in answers} == {"exact"}


class Slow:
    """A database that takes its time, and is not stopped by who has lost patience."""

    def __init__(self):
        self.counted = 0

    def save_misses(self, counts, *, known_only):
        time.sleep(0.2)
        self.counted += sum(counts.values())


def test_a_service_that_stops_in_the_middle_of_a_write_counts_once():
    store = Slow()
    missed = MissBuffer(store)

    async def run():
        missed.count(question(1), "default")
        writing = asyncio.create_task(missed.write())
        await asyncio.sleep(0.05)
        missed.count(question(2), "default")
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
        await missed.write()

    asyncio.run(run())
    assert store.counted == 2
