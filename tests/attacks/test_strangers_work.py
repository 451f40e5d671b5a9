"""Work that a caller can have done as often as they like: little at a time, and a bound in all."""

import copy
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from autotune.domain.codec import to_data
from autotune.domain.job import Request
from autotune_db import SqlStore, query
from autotune_service.pages import problem
from tests.samples.dashboard import fill
from tests.samples.database import new_store
from tests.samples.matching import SPEC, question, record
from tests.servers.service import Running, running, until
from tests.service.test_writing_routes import body, trial

BUSY = b"is being computed for others"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Set when the importance of axes is being computed, and to be set for it to end."""
    begun, go_on = threading.Event(), threading.Event()

    def importance(_: Sequence[object]) -> list[tuple[str, float]]:
        begun.set()
        assert go_on.wait(300)
        return [("bm", 1.0)]

    monkeypatch.setattr(problem, "importance", importance)
    return begun, go_on


def test_importance_is_computed_for_one_reader_at_a_time(
    database: str, slow: tuple[threading.Event, threading.Event]
) -> None:
    begun, go_on = slow
    new_store(database, fill).close()
    pages: list[bytes] = []
    with running(database, wait_s=60) as service:

        def ask() -> None:
            pages.append(service.raw("GET", "/keys/1?importance=1")[2])

        first = threading.Thread(target=ask)
        first.start()
        assert begun.wait(300)
        ask()
        go_on.set()
        first.join()
        assert [BUSY in page for page in pages] == [True, False]
        ask()
    assert BUSY not in pages[-1]


def test_importance_that_nobody_waits_for_any_more_is_still_the_only_one(
    database: str, slow: tuple[threading.Event, threading.Event]
) -> None:
    begun, go_on = slow
    with new_store(database, fill), running(database, wait_s=3.0) as service:
        assert service.raw("GET", "/keys/1?importance=1")[0] == 503
        assert begun.is_set()
        assert BUSY in service.raw("GET", "/keys/1?importance=1")[2]
        go_on.set()
        until(lambda: BUSY not in service.raw("GET", "/keys/1?importance=1")[2])


def test_nobody_describes_kernels_without_end(
    service: Running,
    store: SqlStore,
    writer: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(query, "MOST_KERNELS", 5)
    versions = {"jax": "1", "jaxlib": "1", "libtpu": "1"}
    for start in range(0, 20, 4):
        names = [f"made_up_{start + number}" for number in range(4)]
        kernels = [to_data(replace(SPEC, name=name)) for name in names]
        asked = {"worker": "w", "kernels": kernels, "toolchain": versions, "lease_s": 60}
        status, said = service.post("/v1/claims", asked, writer)
        assert status == 200, said
    assert len(store.kernels()) == 5
    assert "kernels are not described" in caplog.text


def test_nobody_takes_a_job_by_a_shorter_lease(
    service: Running, store: SqlStore, writer: str, admin: str
) -> None:
    store.jobs.add(Request(kernel=SPEC.name, problem=question(7).problem, chip=question(7).chip))
    claim = {"kernels": [to_data(SPEC)], "toolchain": to_data(question(7).toolchain)}
    first = service.post("/v1/claims", claim | {"worker": "a", "lease_s": 60}, writer)[1]["job"]
    time.sleep(1.2)
    for token in (writer, admin):
        asked = claim | {"worker": "thief", "lease_s": 1}
        assert service.post("/v1/claims", asked, token) == (200, {"job": None})
    job = store.jobs.get(first["number"])
    assert job is not None and (job.worker, job.attempt) == (first["worker"], 1)


@pytest.mark.parametrize("when", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"])
def test_a_time_at_the_end_of_the_calendar_is_refused(
    service: Running, writer: str, when: str
) -> None:
    pushed = body(record(question(7)), trials=(trial(1, 8),))
    for part in ("record", "trial"):
        sent = copy.deepcopy(pushed)
        (result,) = sent["results"]
        changed = result["record"] if part == "record" else result["trials"][0]
        changed["created_at"] = when
        status, answer = service.post("/v1/results", sent, writer)
        assert status == 422, answer
        assert answer["error"]["field"].endswith("created_at")


@pytest.mark.parametrize("recheck", [False, True])
def test_nor_by_a_push(
    store: SqlStore, database: str, writer: str, monkeypatch: pytest.MonkeyPatch, recheck: bool
) -> None:
    monkeypatch.setattr(query, "MOST_KERNELS", 2)
    others = [to_data(replace(SPEC, name=f"made_up_{number}")) for number in range(2)]
    with running(database, recheck=recheck) as service:
        assert service.post("/v1/results", body(record(question(7))), writer)[0] == 200
        pushed = body(record(question(9))) | {"kernels": [to_data(SPEC), *others]}
        status, answer = service.post("/v1/results", pushed, writer)
        assert (status, answer["error"]["field"]) == (422, "kernels")
        assert "2 kernels are described there" in answer["error"]["message"]
    assert len(store.kernels()) == 1 and question(9) not in {
        record.key for record in store.records()
    }
