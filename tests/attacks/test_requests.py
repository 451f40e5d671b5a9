"""What a request may be made of: two lengths, strange encodings, names that look alike."""

import socket
from dataclasses import replace

import pytest

from autotune.domain.errors import InvalidInputError
from autotune.domain.job import Ability, Request
from autotune.domain.token import WRITER
from autotune_db import open_store
from autotune_service.middleware.hosts import allowed_hosts
from autotune_service.settings import Settings
from tests.samples.matching import SPEC, question, record
from tests.servers.service import running
from tests.service.test_writing_routes import body

POST = b"POST /v1/lookup HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SMUGGLED = b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n"


def answers(service, sent):
    """The first lines of all answers until the connection ends."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=300) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    return [line for line in received.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        b"Content-Length: 4\r\nContent-Length: 40\r\n\r\nnull",
        b"Content-Length: 4, 4\r\n\r\nnull",
        b"Content-Length: +4\r\n\r\nnull",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\nnull",
        b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nnull",
    ],
)
def test_a_request_within_a_request_is_never_answered(service, head):
    assert answers(service, POST + head + SMUGGLED) == [b"HTTP/1.1 400 Bad Request"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (b"Host", (b"evil.example", b"localhost")),
        (b"Host", (b"localhost", b"evil.example")),
        (b"Sec-Fetch-Site", (b"cross-site", b"none")),
        (b"Sec-Fetch-Site", (b"none", b"none")),
        (b"Authorization", (b"Basic eA==", b"Bearer TOKEN")),
        (b"Authorization", (b"Bearer TOKEN", b"bearer TOKEN")),
        (b"Cookie", (b"autotune_token=TOKEN", b"autotune_token=x")),
        (b"Content-Type", (b"text/plain", b"application/json")),
        (b"Content-Encoding", (b"gzip", b"identity")),
        (b"Content-Length", (b"2", b"2")),
    ],
)
@pytest.mark.parametrize("path", [b"/v1/lookup", b"/v1/jobs", b"/v1/checks"])
def test_no_header_that_decides_is_taken_from_two(service, writer, path, name, values):
    """Else a proxy could have judged the call by the one, and the service does by the other."""
    usual = {b"Host": b"localhost", b"Content-Length": b"2", b"Connection": b"close"}
    usual |= {b"Content-Type": b"application/json", b"Authorization": b"Bearer TOKEN"}
    usual.pop(name, None)
    head = [*usual.items(), *((name, value) for value in values)]
    sent = b"".join(b"%b: %b\r\n" % line for line in head).replace(b"TOKEN", writer.encode())
    method = b"GET" if path == b"/v1/checks" else b"POST"
    (status,) = answers(service, b"%b %b HTTP/1.1\r\n%b\r\n{}" % (method, path, sent))
    refused = {b"HTTP/1.1 400 Bad Request"}
    if values[1] == b"evil.example":
        refused |= {b"HTTP/1.1 421 Misdirected Request"}
    assert status in refused


@pytest.mark.parametrize(
    "sent",
    [b'\xff{"miss": 1}', b'{"miss": ' + b"9" * 5_000 + b"}", b"[" * 100_000, b'{"miss": 1} x', b""],
    ids=["no unicode", "a number of 5,000 digits", "brackets for ever", "more behind it", "empty"],
)
@pytest.mark.parametrize("path", ["/v1/lookup", "/v1/results", "/v1/jobs", "/v1/claims"])
def test_broken_json_has_one_code(service, writer, sent, path):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {writer}"}
    status, _, answer = service.raw("POST", path, sent, **headers)
    assert (status, b'"invalid_json"' in answer) == (400, True), answer


@pytest.mark.parametrize("path", ["/v1/lookup", "/v1/results"])
def test_a_compressed_body_is_not_opened(service, writer, path):
    headers = {"Content-Encoding": "gzip", "Authorization": f"Bearer {writer}"}
    status, _, answer = service.raw("POST", path, b"\x1f\x8b", **headers)
    assert (status, b'"compressed_body"' in answer) == (415, True)


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/results"])
def test_json_by_another_name_is_refused_with_the_remedy(service, writer, path):
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # of a page of somebody else
    headers = {**form, "Authorization": f"Bearer {writer}"}
    status, _, answer = service.raw("POST", path, b'{"miss": 1}', **headers)
    assert (status, b"Content-Type: application/json" in answer) == (415, True)


@pytest.mark.parametrize("path", ["/v1/jobs/", "/v1//jobs", "/v1/x/../jobs", "/v1/jobs%00", "//v1"])
def test_a_path_is_what_it_says(store, database, path):
    with running(database, hosts="*") as service:
        status, headers, _ = service.raw("GET", path, Host="evil.example")
    assert (status, "location" in headers) == (404, False)


@pytest.mark.parametrize("name", ["сi", "ci ", "ci/x", "ci\n", "c\u200bi", "ｃi", ""])
def test_no_token_has_a_name_that_looks_like_another(store, name):
    with pytest.raises(InvalidInputError, match="a name must have"):
        store.tokens.create(name, WRITER, None)


def test_a_description_that_was_pushed_gives_way_to_the_kernel_itself(service, store, writer):
    """Else who knows the next version of a kernel could say beforehand what its configs may be."""
    lie = replace(SPEC, fingerprint="beef", cuts=())
    key = question(512, fingerprint="beef")
    pushed = body(record(key, 64))
    pushed["kernels"][0] |= {"fingerprint": "beef", "cuts": []}
    assert service.post("/v1/results", pushed, writer)[0] == 200
    assert lie in store.kernels()
    truth = replace(SPEC, fingerprint="beef")
    store.save_kernel(truth)
    service.post("/v1/results", pushed, writer)
    assert store.kernel("mm", "beef") == truth


@pytest.mark.slow
def test_what_a_database_cannot_hold_is_the_callers_mistake(postgres):
    """Not a failure of the database, which would be reported and tried again for ever."""
    url = postgres.new_database()
    with open_store(url, create=True) as store, running(url) as service:
        writer = store.tokens.create("ci", WRITER, None)[1]
        given = {"worker": "ci/w", "attempt": 1, "state": "failed", "message": "a\0b"}
        key = question(9)
        job, _ = store.jobs.add(Request(kernel=key.kernel, problem=key.problem, chip=key.chip))
        able = Ability(kernels={key.kernel: key.fingerprint}, toolchain=key.toolchain)
        assert store.jobs.claim("ci/w", able, 60, claim="") is not None  # without a secret
        assert service.get("/kernels/%00")[0] == 422
        assert service.post(f"/v1/jobs/{job.number}/finish", given, writer)[0] == 422
        assert service.get("/readyz")[0] == 200


FOREIGN = ("evil.example", "evil.example:8700", "127.0.0.1.evil.example", "localhost.evil.example")
OWN = ("localhost:8700", "127.0.0.1", "[::1]:8700", "LOCALHOST.", "app.localhost", "10.0.0.7:80")


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize("path", ["/", "/v1/records", "/healthz", "/session"])
def test_a_foreign_name_is_answered_with_nothing(service, path, host):
    status, _, body = service.raw("GET", path, Host=host)
    assert status == 421
    assert b"--hosts" in body and b"records" not in body


def test_nor_does_it_look_up(service):
    assert service.raw("POST", "/v1/lookup", b'{"questions": []}', Host=FOREIGN[0])[0] == 421


@pytest.mark.parametrize("host", OWN)
def test_its_own_names_are_answered(service, host):
    for _ in range(2):
        assert service.raw("GET", "/healthz", Host=host)[0] == 200


def test_what_is_named_is_answered_too(store, database):
    with running(database, hosts="tuning.example:8700, other.") as service:
        names = ("tuning.example:443", "Other", "evil.example")
        assert [service.raw("GET", "/", Host=name)[0] for name in names] == [200, 200, 421]


def test_where_others_can_call_any_name_is_answered_unless_some_are_named(monkeypatch):
    assert allowed_hosts(Settings(host="0.0.0.0")) is None
    assert allowed_hosts(Settings(hosts="*")) is None
    assert allowed_hosts(Settings(host="0.0.0.0", hosts="a.example")) is not None
    assert allowed_hosts(Settings(host="::1")) is not None
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1")
    assert allowed_hosts(Settings()) is None
