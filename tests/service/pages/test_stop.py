"""A server that is told to stop does not wait for those who watch a search."""

import http.client
import signal

import pytest

from autotune_db import open_store
from tests.samples.dashboard import fill
from tests.servers.service import free_port, serving


@pytest.mark.slow
def test_an_open_stream_does_not_hold_up_the_end(database: str) -> None:
    with open_store(database, create=True) as store:
        fill(store)
    port = free_port()
    with serving(database, "--drain-s", "600", port=port) as process:
        watching = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        watching.request("GET", "/keys/1/events")
        stream = watching.getresponse()
        assert stream.readline().startswith(b"retry")
        process.send_signal(signal.SIGTERM)
        process.wait(300)  # a stream lives for five seconds, the drain would last ten minutes
        assert process.returncode == 0
        watching.close()
