"""Sockets that are opened and left, heads and bodies that never end: others stay served."""

import http.client
import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager

import pytest
import uvicorn

from autotune_service import connections
from autotune_service.pages import event_stream
from tests.samples.matching import question
from tests.servers.service import Running, running, until

HALF_HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
_LAST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
HALF_BODY = b"POST /v1/lookup HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"


@pytest.fixture
def impatient(monkeypatch, store, database):
    for name in ("HEAD_S", "BODY_S", "READ_S", "_EVERY_S"):
        monkeypatch.setattr(connections, name, 0.3)
    with running(database, connections_per_address=20) as service:
        yield service


def connected(service, first=b""):
    connection = socket.create_connection(("127.0.0.1", service.port), 20)
    connection.sendall(first)
    return connection


def rest_of(connection):
    """All that comes until the service closes it; fails where that takes 20 s."""
    received = b""
    try:
        while chunk := connection.recv(1 << 16):
            received += chunk
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("first", [b"", HALF_HEAD, HALF_BODY], ids=["silent", "head", "body"])
def test_what_does_not_end_is_closed(impatient, first):
    with connected(impatient, first) as connection:
        rest_of(connection)
    assert impatient.get("/healthz")[0] == 200


def test_a_head_that_trickles_is_closed(impatient):
    """Each byte comes in time, the whole does not."""
    with connected(impatient, HALF_HEAD) as connection:
        with pytest.raises(OSError):
            for _ in range(200):
                connection.sendall(b"x")
                time.sleep(0.05)
        rest_of(connection)


@pytest.mark.parametrize("name", [b"", b"X-Long: "], ids=["path", "header"])
def test_a_large_head_is_refused_while_it_comes(service, name):
    with connected(
        service, b"GET /healthz HTTP/1.1\r\n" + name if name else b"GET /"
    ) as connection:
        sent = 0
        try:
            for _ in range(96):
                connection.sendall(b"x" * (1 << 20))
                sent += 1
        except OSError:
            pass
        assert sent < 20
        rest_of(connection)
    assert service.get("/healthz")[0] == 200


@pytest.mark.parametrize("first_bytes", [0, 30_000], ids=["at once", "in two pieces"])
def test_many_small_headers_are_too_large_together(service, first_bytes):
    headers = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 1_000) for number in range(40))
    head = b"GET /healthz HTTP/1.1\r\n" + headers + b"\r\n"
    with connected(service, head[:first_bytes]) as connection:
        time.sleep(0.2 if first_bytes else 0)  # else both come together
        connection.sendall(head[first_bytes:])
        assert rest_of(connection)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 431")


def test_a_long_request_line_in_two_pieces_is_too_large(service):
    path = b"GET /healthz?" + b"x" * 30_000
    with connected(service, path) as connection:
        time.sleep(0.2)
        connection.sendall(b"x" * 10_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert rest_of(connection)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 431")


def test_one_address_has_so_many(impatient):
    with ExitStack() as stack:
        opened = [stack.enter_context(connected(impatient)) for _ in range(20)]
        with connected(impatient, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") as another:
            assert rest_of(another) == b""
        for connection in opened:
            rest_of(connection)  # each ends by itself: then there is room again
    assert impatient.lookup(question(1024))[1][0]["match"] == "exact"


def test_an_answer_that_nobody_takes_is_thrown_away(impatient):
    """More than the buffers of the kernel hold; closing alone would wait for the reader."""
    call = b"GET /static/x/plotly-cartesian.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(impatient, call * 12) as slow:
        until(lambda: _is_reset(slow))
    assert impatient.get("/healthz")[0] == 200


async def _stream(scope, receive, send):
    """More than the buffers of the kernel hold, as fast as it is taken."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(400):
        await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
    await send({"type": "http.response.body"})


def test_a_stream_that_is_taken_steadily_ends(monkeypatch):
    """Its buffer is never empty, and seldom smaller than a moment ago."""
    for name in ("READ_S", "_EVERY_S"):
        monkeypatch.setattr(connections, name, 0.3)
    config = uvicorn.Config(
        _stream, port=0, http=connections.GuardedProtocol, ws="none", lifespan="off"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    call = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    taken = 0
    with connected(Running(port), call) as connection:
        while chunk := connection.recv(1 << 16):
            taken += len(chunk)
            time.sleep(0.01)
    server.should_exit = True
    thread.join()
    assert taken > 400 << 16


def _is_reset(connection):
    """Without reading what came."""
    try:
        connection.send(b"G")
    except OSError:
        return True
    return False


def whole_answer(connection):
    """Head and body may come one after the other."""
    data = b""
    while not data.endswith(b"}"):
        more = connection.recv(1 << 16)
        assert more, data
        data += more
    return data


def test_a_connection_that_is_used_stays(impatient, monkeypatch):
    """Longer than any of the limits for one call, of which a busy machine needs a part."""
    for name in ("HEAD_S", "BODY_S", "READ_S"):
        monkeypatch.setattr(connections, name, 2.0)
    call = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(impatient) as connection:
        for _ in range(25):
            connection.sendall(call)
            assert whole_answer(connection).startswith(b"HTTP/1.1 200")
            time.sleep(0.1)


@pytest.mark.parametrize(
    "more", [b"X-A: %s\r\n" % (b"b" * 1_000), b"b" * 1_024], ids=["lines", "one line"]
)
def test_trailers_are_no_headers_and_have_an_end(service, more):
    """Megabytes of them would be kept, and one that is long copied for each piece of it."""
    first = HALF_BODY.replace(b"Content-Length: 100", b"Transfer-Encoding: chunked").rstrip(b"{")
    with connected(service, first + b"2\r\n{}\r\n0\r\nX-Long: b") as connection:
        with pytest.raises(OSError):
            for _ in range(10_000):
                connection.sendall(more)
        rest_of(connection)
    trailers = b"2\r\n{}\r\n0\r\nHost: elsewhere.example\r\n\r\n"
    with connected(
        service, first.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    ) as trailing:
        trailing.sendall(trailers)
        assert rest_of(trailing).startswith(b"HTTP/1.1 422")  # not 421: it is for this host


@pytest.mark.parametrize(
    ("query", "lines", "status"),
    [
        (b"", [b"a:"] * (connections.MOST_HEADERS - 4), b"200"),
        (b"", [b"a:"] * 7_000, b"400"),
        (b"?" + b"&" * 30_000, [], b"422"),
    ],
    ids=["some headers", "many", "parameters"],
)
def test_a_head_has_few_parts(service, query, lines, status):
    """Ten thousand take tens of milliseconds, in which nobody else is answered."""
    head = _LAST.replace(b"healthz", b"healthz" + query).replace(
        b"Connection", b"\r\n".join([*lines, b"Connection"])
    )
    with connected(service, head) as connection:
        assert rest_of(connection).startswith(b"HTTP/1.1 " + status)


def test_no_cookie_is_unquoted(service, monkeypatch):
    """Some versions of Python take a second of the one thread for one of 30 kB (CVE-2024-7592), and
    FastAPI reads those of each call."""
    read = []
    for module in ("http.cookies", "starlette.requests.http_cookies"):
        monkeypatch.setattr(f"{module}._unquote", lambda text: read.append(text) or text)
    for path in ("/healthz", "/", "/session", "/v1/audit", "/v1/records"):
        service.raw("GET", path, Cookie='a="\\a\\a"; autotune_token="\\a\\a"')
    assert not read


def test_pipelined_calls_have_an_end(service):
    """A piece of 256 KiB may hold ten thousand, all of which would be parsed at once."""
    call = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(service, call * connections.MOST_PIPELINED + _LAST) as connection:
        assert rest_of(connection).count(b"HTTP/1.1 200") == connections.MOST_PIPELINED + 1
    with connected(service, call * 5_000) as connection:
        assert rest_of(connection).count(b"HTTP/1.1 200") < 100
    assert service.get("/healthz")[0] == 200


def test_a_call_that_offers_another_protocol_is_answered_once(service):
    """What follows it on the connection would never be."""
    offer = _LAST.replace(b"close", b"Upgrade\r\nUpgrade: h2c")
    with connected(service, offer + offer) as connection:
        assert rest_of(connection).count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["Upgrade"], b"for the call has Upgrade"),
        (["close, upgrade"], b"for the call has Upgrade"),
        (["UPGRADE", "close"], b"for the call has Upgrade"),
        (
            ["close"],
            b"HTTP/1.1 200",
        ),  # a proxy takes ``Connection`` away, and may leave ``Upgrade``
        (["close", "x-upgrade"], b"HTTP/1.1 200"),
    ],
)
def test_the_body_of_such_a_call_is_not_read(service, lines, said):
    head = [f"Connection: {line}" for line in lines] + ["Upgrade: h2c", "Content-Length: 17"]
    start = "\r\n".join(["POST /v1/lookup HTTP/1.1", "Host: localhost", *head, "", ""])
    with connected(service, start.encode() + b'{"questions": []}') as connection:
        assert said in rest_of(connection)


@contextmanager
def following(service, key):
    """The status of a stream that stays open."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=300)
    with closing(connection):
        connection.request("GET", f"/keys/{key}/events")
        yield connection.getresponse().status


@pytest.mark.parametrize("limit", ["MOST_OF_ADDRESS", "MOST_STREAMS"])
def test_so_many_and_no_more(service, store, monkeypatch, limit):
    monkeypatch.setattr(event_stream, limit, 3)
    with ExitStack() as stack:
        statuses = [stack.enter_context(following(service, 1)) for _ in range(6)]
    assert statuses == [200] * 3 + [429] * 3

    def there_is_room():
        with following(service, 1) as status:
            return status == 200

    until(there_is_room)
