"""Starting a service in a thread of the test, and asking it over a real socket."""

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import asdict, replace

import uvicorn

from autotune.domain.codec import to_data
from autotune.domain.errors import StoreError
from autotune_service.app import create_app
from autotune_service.settings import Settings, options
from tests.servers.commands import COMMAND


class Running:
    """A service that answers at ``port`` of this machine."""

    def __init__(self, port):
        self.port = port

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def raw(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def get(self, path, token=None):
        status, _, body = self.raw("GET", path, **_bearer(token))
        return status, json.loads(body)

    def post(self, path, data=None, token=None):
        headers = {"Content-Type": "application/json", **_bearer(token)}
        status, _, body = self.raw("POST", path, json.dumps(data).encode(), **headers)
        return status, json.loads(body)

    def lookup(self, *keys, **more):
        """The snapshot and the answers."""
        status, answer = self.post("/v1/lookup", {"questions": list(map(asked, keys)), **more})
        assert status == 200, answer
        return answer["snapshot"], answer["answers"]


def _bearer(token):
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def asked(key, **changes):
    """A question with all that it may have; a change to None leaves a part out."""
    data = {
        "kernel": key.kernel,
        "fingerprint": key.fingerprint,
        "chip": key.chip.value,
        "problem": to_data(key.problem),
        "toolchain": asdict(key.toolchain),
        **changes,
    }
    return {name: value for name, value in data.items() if value is not None}


class _PromptServer(uvicorn.Server):
    """Looks a hundred times a second whether it is to stop, not ten times: hundreds are started."""

    async def main_loop(self):
        await self.on_tick(0)
        while not self.should_exit:
            await asyncio.sleep(0.01)


@contextmanager
def running(database, *, opened=None, **settings):
    usual = {"refresh_s": 0.05, "reads_per_second": 0, "writes_per_second": 0}
    chosen = Settings(**{**usual, **settings})
    app = create_app(database, chosen, opened=opened)
    config = uvicorn.Config(app, **options(replace(chosen, port=0)), log_level="error")
    server = _PromptServer(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive())
        yield Running(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(120)


def until(true, timeout_s=120):
    """``timeout_s``: what only a hang takes, on a busy machine too."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def publish(service, store, *records):
    """Saves them, and waits until the service answers with them."""
    for record in records:
        store.save_record(record)
    newest = store.snapshots(1)[0].number
    until(lambda: service.get("/healthz")[1]["snapshot"] == newest)


class Failing:
    """A store that can be taken away."""

    def __init__(self, store, whole=None):
        self._store, self._whole, self.gone = store, whole or self, False

    def __getattr__(self, name):
        attribute = getattr(self._store, name)
        return self._failing(attribute) if callable(attribute) else Failing(attribute, self._whole)

    def _failing(self, method):
        def call(*given, **named):
            if self._whole.gone:
                raise StoreError("secret-host is gone")
            return method(*given, **named)

        return call


@contextmanager
def serving(database, *args, port):
    """The installed command, from when it answers; stopped as an orchestrator stops it."""
    process = subprocess.Popen(
        [str(COMMAND), "serve", "--port", str(port), "--db", database, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        until(lambda: _answers(port) or process.poll() is not None)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=120)
        finally:
            process.kill()


def _answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
