"""Every call: it gets an id, is counted by route and status, and logged where it writes or is
refused.

What a middleware refuses, and bugs: each becomes an answer.
"""

import logging
import os
import re
import time
from collections.abc import Awaitable
from contextvars import ContextVar
from itertools import count

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autotune_service.errors import SAFE_HEADERS, HttpError, error_response
from autotune_service.middleware.access import writes
from autotune_service.middleware.body import headers_of
from autotune_service.middleware.metrics import CallMeter

_log = logging.getLogger("autotune.service")


class ErrorMiddleware:
    """Answers every exception from within, and logs those that nobody expected. Where an answer has
    begun there is no second one: the server ends the connection, unless it was complete."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            if scope["type"] != "http":
                raise
            if not isinstance(error, HttpError):
                _log.exception("a call failed")
            if STATUS not in scope:
                answer = error_response(scope, error if isinstance(error, HttpError) else _bug())
                await answer(scope, receive, send)


async def answer_bug(request: Request, _: Exception) -> Response:
    """For the application inside, which answers by itself before the exception gets here."""
    return error_response(request.scope, _bug())


def _bug() -> HttpError:
    """For an exception that nobody expected. What it says itself is for the log."""
    message = (
        f"this is a bug of the service: its log says more, with the request id {request_id.get()}"
    )
    return HttpError(500, "bug", message)


_call_log = logging.getLogger("autotune.service.calls")

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of a call: in its answer, and in every line of the log that belongs to it."""

_HEADER = b"x-request-id"
_PROCESS = os.urandom(4).hex()
_numbers = count()
_FORM = re.compile(rb"[A-Za-z0-9._-]{1,64}")

STATUS = "autotune.status"
"""In the scope of a call: what it is answered with, from the beginning of the answer on."""

STREAMED = "autotune.streamed"
"""There where the answer is meant to last."""


class CallsMiddleware:
    """Logs what writes, and what was refused."""

    def __init__(self, app: ASGIApp, meter: CallMeter) -> None:
        self._app, self._meter = app, meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, call_id = time.perf_counter(), _new_request_id(scope)

        def send_and_note(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                scope[STATUS] = message["status"]
                message["headers"] = [*message.get("headers", ()), (_HEADER, call_id)]
            return send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            seconds, status = time.perf_counter() - begun, scope.get(STATUS, 500)
            counted = self._meter.streamed if STREAMED in scope else self._meter.called
            # By the template of its route: paths themselves are as many as callers like.
            counted(getattr(scope.get("route"), "path", None) or "other", status, seconds)
            if status >= 400 or writes(scope):
                token = scope["state"].get("token")
                call = {
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                    "ms": round(seconds * 1e3, 3),
                    "by": token.name if token else None,
                }
                _call_log.info("call", extra=call)


def _new_request_id(scope: Scope) -> bytes:
    """The caller's own ``X-Request-ID`` where it has the form of one, else another; the log has it
    from now on."""
    given = headers_of(scope).get(_HEADER)
    is_taken = given is not None and _FORM.fullmatch(given)
    call_id = given.decode() if given and is_taken else f"{_PROCESS}{next(_numbers):08x}"
    request_id.set(call_id)
    return call_id.encode()


class HeadMiddleware:
    """HEAD wherever GET is: answered as GET. The server knows the method and leaves the body
    out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            inner = {**scope, "method": "GET"}
            try:
                await self._app(inner, receive, send)
            finally:  # for what is counted, however it ends
                scope.update({name: inner[name] for name in ("route", STREAMED) if name in inner})
        else:
            await self._app(scope, receive, send)


class SafeHeadersMiddleware:
    """An answer that brings no policy of its own, as pages do, may load and run nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_safe if scope["type"] == "http" else send)
