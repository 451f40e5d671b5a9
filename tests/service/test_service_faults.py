"""What callers see while the database cannot be written to, and that nobody waits for others."""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
from loadsamples import SPEC, key, lookup_body, push_body, result
from serving import Running, running, until

from autotune.errors import StoreError
from autotune.tokens import ADMIN
from db import SqlStore, open_store

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


def test_a_newer_snapshot_does_not_wait_for_what_was_missed(
    database: str, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = threading.Event()
    with (
        open_store(database, create=False) as own,
        running(database, opened=lambda: own) as service,
    ):
        monkeypatch.setattr(own, "save_misses", lambda _: wait.wait(20))
        service.post("/v1/lookup", lookup_body([key(0, 77)]))
        time.sleep(0.2)
        store.save_record(result(key(0, 1), "second", mark=0).record)
        until(lambda: service.get("/healthz")[1]["snapshot"] == 2, timeout_s=10)
        wait.set()


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
                wait.wait(20)
            return real(number, since)

        monkeypatch.setattr(own, "snapshot_change", slow)
        older = threads.submit(service.post, "/v1/lookup", lookup_body([key(0, 0)], snapshot=1))
        assert begun.wait(10)
        store.save_record(result(key(0, 2), "third", mark=0).record)
        until(lambda: service.get("/healthz")[1]["snapshot"] == 3, timeout_s=10)
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
