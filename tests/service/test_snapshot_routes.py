"""Snapshots, misses, and a database that goes away."""

import time

import pytest

from autotune.answering.bundle import bundle_from_bytes
from tests.samples.matching import SPEC, question, record
from tests.servers.service import Failing, publish, running, until


def test_a_new_snapshot_is_taken_over_and_the_old_one_stays(service, store):
    old = service.lookup(question(1024))
    newer = record(question(1024), 128)
    publish(service, store, newer)
    assert service.lookup(question(1024))[1][0]["config"]["axes"]["bm"] == 128
    assert service.lookup(question(1024), snapshot=2) == old
    assert service.lookup(question(4096, 256), snapshot="1")[1][0]["match"] == "default"
    assert service.lookup(question(1024), snapshot=0)[1][0]["match"] == "default"


def test_a_number_may_be_asked_for_at_once(store, database):
    with running(database, refresh_s=100) as service:
        store.save_record(record(question(512)))
        assert service.lookup(question(512), snapshot=3)[1][0]["match"] == "exact"


def test_the_list_and_a_bundle(service):
    _, answer = service.get("/v1/snapshots")
    assert answer["in_force"] == 2
    assert [snapshot["number"] for snapshot in answer["snapshots"]] == [2, 1]
    assert len(service.get("/v1/snapshots?limit=1")[1]["snapshots"]) == 1
    status, headers, content = service.raw("GET", "/v1/snapshots/2")
    bundle = bundle_from_bytes(content)
    assert (status, bundle.snapshot, bundle.kernels) == (200, 2, (SPEC,))
    assert set(bundle.records) == {record(question(1024)), record(question(4096, 256))}
    assert headers["cache-control"] == "no-cache"
    latest = service.raw("GET", "/v1/snapshots/latest")
    assert latest[2] == content
    assert latest[1]["cache-control"] == "no-cache"


def test_a_bundle_that_the_caller_has(service):
    tag = service.raw("GET", "/v1/snapshots/2")[1]["etag"]
    for given in (tag, f'"other", W/{tag}'):
        status, headers, content = service.raw(
            "GET", "/v1/snapshots/latest", **{"If-None-Match": given}
        )
        assert (status, content, headers["etag"]) == (304, b"", tag)
    assert service.raw("GET", "/v1/snapshots/1", **{"If-None-Match": tag})[0] == 200


@pytest.mark.parametrize("number, status", [("9", 404), ("x", 422), ("-1", 422), ("9" * 99, 422)])
def test_no_such_snapshot(service, number, status):
    answered, data = service.get(f"/v1/snapshots/{number}")
    assert (answered, data["error"]["field"]) == (status, "snapshot" if status == 404 else "number")


def test_every_process_has_the_same_bundle(service, store, database, admin):
    """Those that saw all snapshots, and those that came later."""
    for block in (128, 512):
        publish(service, store, record(question(1024), block))
    with running(database) as other:
        answers = [process.raw("GET", "/v1/snapshots/4") for process in (other, service)]
        assert answers[0][2] == answers[1][2]
        assert answers[0][1]["etag"] == answers[1][1]["etag"]
        service.post("/v1/snapshots/1/rollback", token=admin)
        healthy = {"snapshot": 5, "records": 1, "database": "ok"}.items()
        until(lambda: healthy <= other.get("/healthz")[1].items())


def test_misses_are_written_when_it_stops(store, database):
    with running(database, refresh_s=100) as service:
        service.lookup(question(9, 9))
        assert store.misses() == []
    assert store.misses()[0].count == 1


class TestDatabaseGone:
    @pytest.fixture
    def failing(self, store):
        return Failing(store)

    @pytest.fixture
    def service(self, failing):
        with running("", opened=lambda: failing) as service:
            failing.gone = True
            until(lambda: service.get("/healthz")[1]["database"] == "unavailable")
            yield service

    def test_what_is_in_memory_is_answered(self, service):
        snapshot, answers = service.lookup(question(1024), question(2048))
        assert snapshot == 2
        assert [answer["match"] for answer in answers] == ["exact", "nearest"]
        assert service.raw("GET", "/v1/snapshots/latest")[0] == 200

    @pytest.mark.parametrize("path", ["/v1/snapshots", "/v1/snapshots/1", "/v1/misses"])
    def test_what_is_not_is_refused_for_now(self, service, path):
        status, headers, body = service.raw("GET", path)
        assert (status, headers["retry-after"]) == (503, "5")
        assert b"secret-host" not in body

    def test_it_recovers_and_no_miss_is_lost(self, service, failing, store):
        service.lookup(question(9, 9))
        store.save_record(record(question(512)))
        time.sleep(0.3)  # several times as long as it waits until it writes
        failing.gone = False
        healthy = {"status": "ok", "snapshot": 3, "records": 3, "database": "ok"}.items()
        until(lambda: healthy <= service.get("/healthz")[1].items())
        until(lambda: [miss.count for miss in store.misses()] == [1])
