"""The proxy's configuration, in a real nginx before a real service: other places, shorter times."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import pytest

from autotune.domain.token import WRITER
from autotune_db import open_store
from tests.samples.dockerfiles import FOLDER, run
from tests.samples.matching import SPEC, question, record
from tests.servers.service import Running, asked, free_port, running, until

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None, reason="nginx is not on this machine: apt-get install nginx"),
]
JSON = {"Content-Type": "application/json"}
_AS_ROOT = "daemon off;" + (
    " user root;" if os.geteuid() == 0 else ""
)  # pytest's folders are closed
CONFIGURATION = (FOLDER / "nginx" / "nginx.conf").read_text()


@dataclass(frozen=True)
class Proxy:
    """``port`` takes TLS, ``plain`` none."""

    port: int
    plain: int
    context: ssl.SSLContext
    service: Running

    def connection(self, address="127.0.0.1"):
        """From one of this machine's addresses."""
        return http.client.HTTPSConnection(
            "localhost", self.port, timeout=120, context=self.context, source_address=(address, 0)
        )

    def get(self, path, headers=None, address="127.0.0.1"):
        return self.call("GET", path, None, headers, address)

    def call(self, method, path, body=None, headers=None, address="127.0.0.1"):
        with closing(self.connection(address)) as connection:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()


@pytest.fixture
def store(tmp_path):
    with open_store(str(tmp_path / "service.db"), create=True) as opened:
        opened.save_kernel(SPEC)
        opened.save_record(record())
        yield opened


@pytest.fixture
def proxy(store, tmp_path, monkeypatch, request):
    """``request.param``: what stands differently in the configuration."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1")
    with (
        running(str(tmp_path / "service.db")) as service,
        _before(service, tmp_path, **getattr(request, "param", {})) as proxy,
    ):
        yield proxy


@contextmanager
def _before(service, folder, **changes):
    secrets, port, plain = folder / "secrets", free_port(), free_port()
    assert run([str(FOLDER / "make-secrets.sh"), str(secrets)]).returncode == 0
    places = {
        "/run/secrets": str(secrets),
        "/tmp/": f"{folder}/",
        "service:8700": f"127.0.0.1:{service.port}",
        "listen 8443": f"listen 127.0.0.1:{port}",
        "listen 8080": f"listen 127.0.0.1:{plain}",
    }
    context = ssl.create_default_context(cafile=str(secrets / "certificate"))
    with _nginx(_changed({**places, **changes}), folder):
        yield Proxy(port=port, plain=plain, context=context, service=service)


def _changed(changes):
    """All at once: what is put in is not changed again."""
    wanted = re.compile("|".join(map(re.escape, changes)))
    assert {found[0] for found in wanted.finditer(CONFIGURATION)} == set(changes)
    return wanted.sub(lambda found: changes[found[0]], CONFIGURATION)


@contextmanager
def _nginx(configuration, folder):
    file, pid = folder / "nginx.conf", folder / "nginx.pid"
    file.write_text(configuration)
    command = [str(NGINX), "-p", str(folder), "-c", str(file), "-g", _AS_ROOT]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: pid.exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()[1]
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)


def differing(**changes):
    """``setting="before>after"``: what is so called in the configuration has another value."""
    pairs = [(name, *value.split(">")) for name, value in changes.items()]
    lines = {f"{name} {before};": f"{name} {after};" for name, before, after in pairs}
    return pytest.mark.parametrize("proxy", [lines], indirect=True, ids=["differing"])


def test_it_answers_over_tls(proxy):
    status, body = proxy.get("/healthz")
    assert (status, json.loads(body)["records"]) == (200, 1)
    asking = json.dumps({"questions": [asked(question())]}).encode()
    status, body = proxy.call("POST", "/v1/lookup", asking, JSON)
    assert status == 200 and json.loads(body)["answers"][0]["match"] == "exact"


def test_without_tls_nothing_is_answered(proxy):
    with closing(http.client.HTTPConnection("127.0.0.1", proxy.plain, timeout=120)) as connection:
        connection.request("GET", "/healthz", headers={"Host": "tuning"})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Location"]) == (308, "https://tuning/healthz")


def test_strangers_do_not_read_the_metrics(proxy):
    assert proxy.get("/metrics")[0] == 404
    assert proxy.service.raw("GET", "/metrics")[0] == 200


def test_the_callers_address_is_known_and_cannot_be_made_up(proxy, store):
    _, secret = store.tokens.create("ci", WRITER, None)
    job = {"kernel": SPEC.name, "problem": asked(question())["problem"], "chip": "v5e"}
    sent = {**JSON, "Authorization": f"Bearer {secret}", "X-Forwarded-For": "10.9.8.7"}
    status, body = proxy.call("POST", "/v1/jobs", json.dumps(job).encode(), sent, "127.0.0.5")
    assert status in (200, 201), body
    assert store.audit.entries()[0].author.address == "127.0.0.5"


@differing(client_max_body_size="16m>1k")
def test_a_body_that_is_too_large_is_refused(proxy):
    assert proxy.call("POST", "/v1/results", b" " * 2000, JSON)[0] == 413


def test_the_largest_push_passes(proxy):
    """The service, not the proxy, has the last word on it."""
    status, body = proxy.call("POST", "/v1/results", b" " * (16 << 20), JSON)
    assert status == 401, body
    assert proxy.call("POST", "/v1/jobs", b" " * (2 << 20), JSON)[0] == 413


@differing(limit_conn="pushes 4>pushes 1")
def test_an_address_pushes_so_much_at_once(proxy):
    with closing(proxy.connection()) as connection:
        connection.putrequest("POST", "/v1/results")
        connection.putheader("Content-Length", "100")
        connection.endheaders(b"{")
        until(lambda: proxy.call("POST", "/v1/results", b"{}", JSON)[0] == 429)
        assert proxy.call("POST", "/v1/lookup", b"{}", JSON)[0] == 422
        assert proxy.call("POST", "/v1/results", b"{}", JSON, "127.0.0.6")[0] == 401


@differing(client_header_timeout="10s>1s", client_body_timeout="30s>1s")
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n",
        b"POST /v1/lookup HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_who_is_slow_is_let_go(proxy, sent):
    plain = socket.create_connection(("127.0.0.1", proxy.port), timeout=30)
    with proxy.context.wrap_socket(plain, server_hostname="localhost") as connection:
        connection.sendall(sent)
        while connection.recv(1000):  # ends, else this runs into its own timeout
            pass


def test_a_head_that_is_too_large_is_refused(proxy):
    assert proxy.get("/healthz", {"X-Long": "x" * 40_000})[0] == 400


@differing(limit_conn="addresses 128>addresses 3")
def test_an_address_has_so_many_connections(proxy):
    with ExitStack() as stack:
        for _ in range(3):  # a connection counts while a call of it is under way
            connection = stack.enter_context(closing(proxy.connection()))
            connection.request("GET", "/keys/1/events")
            assert connection.getresponse().status == 200
        assert proxy.get("/healthz")[0] == 429
        assert proxy.get("/healthz", address="127.0.0.6")[0] == 200


def test_events_come_as_they_happen(proxy):
    with closing(proxy.connection()) as connection:
        connection.request("GET", "/keys/1/events")
        answer = connection.getresponse()
        first = answer.read1(65536)
        assert first.startswith(b"retry:")
        assert not answer.isclosed(), "all of it came at once, at its end"
