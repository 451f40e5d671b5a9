"""What a connection may cost before anybody has asked for anything.

The parser that uvicorn uses here, httptools, has no limit for the size of a head, and uvicorn has
no time limit but between two calls: a silent socket, half a head or half a body would stay open.
"""

import asyncio
import logging
import resource
import socket
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_log = logging.getLogger("autotune.service")

HEAD_S = 10.0  # until the head of a call is there
BODY_S = 30.0  # from then until its body is
READ_S = 30.0  # that an answer may be taken more slowly than
READ_BYTES_PER_S = 16 << 10
MAX_HEAD_BYTES = 32 << 10  # also of what frames a body, between two pieces of it
MOST_HEADERS = 100  # of a call: ten thousand fit into a head, and take ten milliseconds
MOST_PIPELINED = 32  # calls that wait for the answer to the one before them
KEEP_ALIVE_S = 5  # between two calls; uvicorn sees to it
_EVERY_S = 1.0
_UNSENT_BYTES = 128 << 10  # that the kernel holds, beside what is on its way
_SPARE_DESCRIPTORS = 64  # for the database, files and events

_by_address: Counter[str] = Counter()


class GuardedProtocol(HttpToolsProtocol):
    """Ends connections that are too slow, too many, or whose heads are too large. Headers that come
    after the body (trailers) are none: a proxy may have looked at the others only.

    ``connections_per_address`` is in the state of the application's lifespan. A proxy that is
    trusted with the callers' addresses may have any number.
    """

    _left_s: float | None = None  # until what is waited for must be there
    _taken_bytes, _patience_s = 0, READ_S
    _head_bytes = _chunk_bytes = 0
    _is_framing = False
    _timer: asyncio.TimerHandle | None = None
    _address = ""
    _written: "_Counting"

    def connection_made(self, transport: Any) -> None:
        counted: Any = _Counting(transport)
        super().connection_made(counted)
        self._written = counted
        plug = transport.get_extra_info("socket")
        if plug.family in (socket.AF_INET, socket.AF_INET6):  # else megabytes are taken at once
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        self._address = self.client[0] if self.client else ""
        _by_address[self._address] += 1
        if self._is_one_too_many():
            _log.warning("too many connections: one of %s is closed", self._address)
            transport.abort()
            return
        self._left_s = HEAD_S
        self._timer = self.loop.call_later(_EVERY_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        _by_address[self._address] -= 1
        if not _by_address[self._address]:
            del _by_address[self._address]
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_bytes > MAX_HEAD_BYTES:
            return  # refused, and still being sent
        self._chunk_bytes, self._is_framing = len(data), True
        super().data_received(data)
        is_head = self.cycle is None or self.scope is not self.cycle.scope
        if is_head or self._is_framing:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._left_s = HEAD_S

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MOST_HEADERS:
            raise ValueError("too many headers")  # uvicorn answers 400

    def on_headers_complete(self) -> None:
        came_bytes = self._head_bytes + self._chunk_bytes
        if came_bytes > MAX_HEAD_BYTES and self._is_head_too_large():
            raise ValueError("the head is too large")  # uvicorn answers 400
        if len(self.pipeline) >= MOST_PIPELINED:  # all are parsed at once: others wait
            raise ValueError("too many calls on one connection")
        super().on_headers_complete()
        if self.parser.should_upgrade():  # the parser ends here: what follows has no answer
            self.cycle.keep_alive = False
        self.headers = []  # the call has those of its head, and no trailers
        self._head_bytes, self._is_framing = 0, False
        self._left_s = BODY_S

    def _is_head_too_large(self) -> bool:
        """Without what came with it; one that is not complete is counted piece by piece."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.url) + headers > MAX_HEAD_BYTES

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._head_bytes, self._is_framing = 0, False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._left_s, self._is_framing = None, False

    def _look(self) -> None:
        """Counts down, so that no call has to look at a clock."""
        if self._left_s is not None:
            self._left_s -= _EVERY_S
        if self._left_s is not None and self._left_s < 0:
            _log.warning("a connection of %s was too slow and is closed", self._address)
            self._refuse(b"408 Request Timeout")
        if self._is_read_too_slowly():
            _log.warning("a connection of %s took its answer too slowly: closed", self._address)
            self.transport.abort()  # closing it would wait until all is taken
        else:
            self._timer = self.loop.call_later(_EVERY_S, self._look)

    def _is_read_too_slowly(self) -> bool:
        """Else answers that nobody takes would fill the memory."""
        unread = self.transport.get_write_buffer_size()
        before, self._taken_bytes = self._taken_bytes, self._written.total_bytes - unread
        if not unread:
            self._patience_s = READ_S
            return False
        taken_s = (self._taken_bytes - before) / READ_BYTES_PER_S
        self._patience_s = min(self._patience_s + taken_s, READ_S) - _EVERY_S
        return self._patience_s < 0

    def _refuse(self, status: bytes) -> None:
        """Answers what has no call yet, and ends the connection."""
        self._left_s = None
        if self.cycle is None or self.cycle.response_complete:
            head = b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            self.transport.write(head)
        self.transport.close()

    def _is_one_too_many(self) -> bool:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(self.connections) > max(descriptors - _SPARE_DESCRIPTORS, 1):
            return True
        limit: int = self.app_state.get("connections_per_address", 0)
        if not limit or self._address in getattr(self.app, "trusted_hosts", ()):
            return False
        return _by_address[self._address] > limit


class _Counting:
    """A transport that counts what is written: a stream fills the buffer again as fast as it is
    taken, so that the buffer alone does not tell."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self.total_bytes = transport, 0
        # Asked for at every call: not by way of ``__getattr__``.
        self.is_closing, self._write = transport.is_closing, transport.write

    def write(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self._write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
