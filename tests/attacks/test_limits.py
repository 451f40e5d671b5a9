"""Who guesses tokens, or says to be somebody else, takes nothing from a rightful caller."""

import json
import time
from contextlib import closing
from http.client import HTTPConnection

import pytest

from autotune.answering.matching import KINDS
from autotune_service.middleware.throttle import Throttle
from tests.samples.matching import question
from tests.servers.service import asked, running

CANCEL = "/v1/jobs/1/cancel"
STILL = pytest.mark.usefixtures("still")


@pytest.fixture
def still(monkeypatch):
    """No second ends: a busy machine may need more than one for the calls of one."""
    monkeypatch.setattr(Throttle.__init__, "__defaults__", (lambda: 0.0,))


def test_a_writer_is_not_refused_for_what_strangers_do(store, database, writer):
    with running(database, writes_per_second=20) as service:
        for _ in range(15):
            statuses = [service.post(CANCEL, token="autotune_guess")[0] for _ in range(2)]
            assert set(statuses) <= {401, 429}
            assert service.post(CANCEL, token=writer)[0] == 404  # there is no such job


@STILL
def test_guesses_are_soon_not_looked_up(store, database, writer):
    with running(database) as service:
        assert any(service.post(CANCEL, token=f"autotune_{n}")[0] == 429 for n in range(120))
        assert service.post(CANCEL, token=writer)[0] == 404


@STILL
def test_writers_are_counted_by_token(store, database, writer, admin):
    with running(database, writes_per_second=1) as service:
        assert any(service.post(CANCEL, token=writer)[0] == 429 for _ in range(30))
        assert service.post(CANCEL, token=admin)[0] == 404


@STILL
def test_nobody_is_believed_to_be_another(store, database):
    with running(database, reads_per_second=1) as service:
        assert any(_from(service, f"10.0.0.{number}") == 429 for number in range(60))


@STILL
def test_what_costs_more_counts_as_more(store, database):
    many = b'{"questions": []}'.ljust(1 << 20)
    for path, body in (("/v1/lookup", many), ("/v1/records", None), ("/", None)):
        with running(database, reads_per_second=300) as service:
            method = "POST" if body else "GET"
            assert service.raw(method, path, body)[0] == 200
            assert any(service.raw(method, path, body)[0] == 429 for _ in range(60)), path


@STILL
def test_a_large_lookup_that_is_wrong_counts_as_more(store, database):
    """Each of its mistakes takes a microsecond or two of the one thread that answers."""
    wrong = json.dumps({"questions": []} | dict.fromkeys(map(str, range(50_000)), 1)).encode()
    with running(database, reads_per_second=300) as service:
        assert any(service.raw("POST", "/v1/lookup", wrong)[0] == 429 for _ in range(15))


def test_what_is_not_accepted_has_an_end(service):
    body = {"questions": [asked(question())]}
    assert service.post("/v1/lookup", body | {"accept": [*KINDS]})[0] == 200
    status, answer = service.post("/v1/lookup", body | {"accept": ["nearest"] * 80_000})
    assert (status, answer["error"]["field"]) == (422, "accept")


@STILL
def test_a_probe_is_answered_however_many_others_read(store, database):
    with running(database, reads_per_second=300) as service:
        assert any(service.raw("GET", "/")[0] == 429 for _ in range(60))
        assert service.get("/healthz")[0] == 200


def test_a_fleet_behind_one_address_starts(store, database):
    """Each host asks 500 questions, and fetches the snapshot."""
    body = json.dumps({"questions": [asked(question(n)) for n in range(1, 501)]}).encode()
    with running(database, reads_per_second=2_000) as service:
        for _ in range(40):
            assert service.raw("POST", "/v1/lookup", body)[0] == 200
            assert service.raw("GET", "/v1/snapshots/latest")[0] == 200


@STILL
def test_who_asks_again_at_once_is_answered_late(store, database):
    """Else refusing alone would take all of a processor."""
    with running(database, reads_per_second=1) as service:
        begun = time.monotonic()
        answers = [service.raw("GET", "/healthz") for _ in range(10)]
        refused = [headers["retry-after"] for status, headers, _ in answers if status == 429]
        assert len(refused) >= 5 and {*refused} == {"1"}
        assert time.monotonic() - begun > 1


def test_a_proxy_that_is_named_is(store, database, monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1")
    with running(database, reads_per_second=5) as service:
        assert {_from(service, f"10.0.0.{number}") for number in range(60)} == {200}


@STILL
def test_the_address_that_the_proxy_adds_counts_not_the_one_before_it(store, database, monkeypatch):
    """Some proxies write a header of their own behind that of a caller."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1")
    with running(database, reads_per_second=1) as service:
        assert 429 in {_from(service, f"10.0.0.{number}", "10.1.1.1") for number in range(20)}


def _from(service, *addresses):
    with closing(HTTPConnection("127.0.0.1", service.port, timeout=300)) as connection:
        connection.putrequest("GET", "/healthz")
        for address in addresses:
            connection.putheader("X-Forwarded-For", address)
        connection.endheaders()
        return connection.getresponse().status
