"""The id of a call: in its answer, and in every line of the log that belongs to it."""

import os
import re
from collections.abc import Awaitable
from contextvars import ContextVar
from itertools import count

from starlette.types import ASGIApp, Message, Receive, Scope, Send

request_id: ContextVar[str] = ContextVar("request_id", default="")

_HEADER = b"x-request-id"
_PROCESS = os.urandom(4).hex()
_numbers = count()
_GIVEN = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class RequestIdMiddleware:
    """Takes the caller's own ``X-Request-ID`` where it has the form of one, else makes one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        own = _id_of(scope)
        request_id.set(own)

        def send_with_id(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (_HEADER, own.encode())]
            return send(message)

        return self._app(scope, receive, send_with_id)


def _id_of(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == _HEADER and _GIVEN.fullmatch(value):
            return str(value.decode())
    return f"{_PROCESS}{next(_numbers):08x}"
