"""What every call passes first: its id, who may call, how often, how large; and what is counted.

POST, PUT, PATCH and DELETE write, but for the lookup, and need a token, whatever their route says:
a new route cannot be forgotten. The lookup, the busiest route, is answered ahead of all that
FastAPI does.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autotune_service.api.lookup import Lookup
from autotune_service.errors import Refusal, bug
from autotune_service.middleware.access import Access
from autotune_service.middleware.logs import new_id, request_id
from autotune_service.middleware.metrics import Meter
from autotune_service.middleware.throttle import Throttle
from autotune_service.settings import Settings

_log = logging.getLogger("autotune.service")
_calls = logging.getLogger("autotune.service.calls")

LOOKUP = "/v1/lookup"
OPEN = ("/healthz", "/readyz", "/metrics")
"""Open also where reading is closed, as scripts and styles are: they tell nothing of what is
tuned."""
_STATIC = "/static/"
MAX_UPLOAD_BYTES = 16 << 20
_BODY_S = 30.0  # for the whole of a body
_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_SAFE = (b"x-content-type-options", b"nosniff")
_POLICY = b"content-security-policy"
_NOTHING = (_POLICY, b"default-src 'none'; frame-ancestors 'none'")


@dataclass(slots=True)
class _Call:
    """One call, and the status that it was answered with. ``id``: empty where none was given and
    nobody needs one: a lookup that is answered, and not logged."""

    scope: Scope
    id: str
    send: Send
    begun: float
    is_lookup: bool
    reads: bool
    status: int = 0

    async def answer(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), _SAFE]
            if self.id:
                headers.append((b"x-request-id", self.id.encode()))
            if not self.is_lookup and all(name != _POLICY for name, _ in headers):
                headers.append(_NOTHING)  # pages bring their own; JSON to a POST is no document
            message["headers"] = headers
        await self.send(message)

    def identify(self, given: bytes | None = None) -> None:
        """From here on logs and answers have its id."""
        self.id = self.id or new_id(given)
        request_id.set(self.id)


def _new_call(scope: Scope, send: Send, *, logs_all: bool) -> _Call:
    given = None
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            given = value
    method = scope["method"]
    is_lookup = method == "POST" and scope["path"] == LOOKUP
    reads = is_lookup or method not in _WRITES
    call = _Call(scope, "", send, time.perf_counter(), is_lookup, reads)
    if given is not None or logs_all or not is_lookup:
        call.identify(given)
    return call


class Front:
    """An ASGI application around another one."""

    def __init__(
        self, inner: ASGIApp, lookup: Lookup, access: Access, meter: Meter, settings: Settings
    ) -> None:
        self._inner, self._lookup, self._access, self._meter = inner, lookup, access, meter
        self._reads = Throttle(settings.reads_per_second)
        self._writes = Throttle(settings.writes_per_second)
        self._log = settings.log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = _new_call(scope, send, logs_all=self._log == "all")
        try:
            await self._pass(call, receive)
        except Refusal as refusal:
            call.identify()
            await refusal.response(scope)(scope, receive, call.answer)
        except Exception:
            call.identify()
            _log.exception("a call failed")
            if not call.status:
                await bug().response(scope)(scope, receive, call.answer)
        finally:
            self._count(call)

    async def _pass(self, call: _Call, receive: Receive) -> None:
        scope = call.scope
        address = scope["client"][0] if scope.get("client") else ""
        if not (self._reads if call.reads else self._writes).allows(address):
            raise Refusal(429, "too_many_calls", "too many calls in this second: try again")
        if call.is_lookup:
            self._access.check_reader(scope)
            await self._lookup(receive, call.answer)
            return
        if not call.reads:
            token = await self._access.writer(scope)
            scope.setdefault("state", {})["token"] = token
            receive = await _whole_body(scope, receive)
        elif scope["path"] not in OPEN and not scope["path"].startswith(_STATIC):
            self._access.check_reader(scope)
        await self._inner(scope, receive, call.answer)

    def _count(self, call: _Call) -> None:
        seconds = time.perf_counter() - call.begun
        route = LOOKUP if call.is_lookup else _route(call.scope)
        self._meter.called(route, call.status, seconds)
        wanted = self._log == "all" or (self._log == "writes" and not call.reads)
        if wanted or (self._log != "none" and call.status >= 400):
            _calls.info("call", extra=_told(call, seconds))


def _told(call: _Call, seconds: float) -> dict[str, Any]:
    token = call.scope.get("state", {}).get("token")
    return {
        "method": call.scope["method"],
        "path": call.scope["path"],
        "status": call.status,
        "ms": round(seconds * 1e3, 3),
        "by": token.name if token else None,
    }


def _route(scope: Scope) -> str:
    """Its template: paths themselves are as many as callers like."""
    return getattr(scope.get("route"), "path", None) or "other"


async def _whole_body(scope: Scope, receive: Receive) -> Receive:
    """Raises ``Refusal`` for one that is too large or too slow, before anything is made of it."""
    told = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if told.isdigit() and int(told) > MAX_UPLOAD_BYTES:
        raise _too_large()
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refusal(400, "disconnected", "the request ended early")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > MAX_UPLOAD_BYTES:
                    raise _too_large()
                if not message.get("more_body"):
                    break
    except TimeoutError as error:
        raise Refusal(408, "too_slow", f"the body took longer than {_BODY_S:g} s") from error
    bodies = iter([b"".join(parts)])

    async def again() -> Message:
        body = next(bodies, None)
        if body is None:
            return await receive()
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _too_large() -> Refusal:
    message = f"the body is larger than {MAX_UPLOAD_BYTES} bytes: send it in parts"
    return Refusal(413, "body_too_large", message)
