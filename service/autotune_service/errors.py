"""What is not answered, in one envelope: ``{"error": {"code", "message", "field"}}``.

The work of the database has threads of its own and a bounded time: what takes longer is refused.
What is wrong around a process is a sentence for each, for ``/readyz`` and the pages.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar, cast

import msgspec
from fastapi.exceptions import RequestValidationError
from pydantic_core import ErrorDetails, ValidationError, from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from autotune.domain.errors import StoreError, UnstorableError

_log = logging.getLogger("autotune.service")

SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Of an answer that no browser should do anything with but show it."""

_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    429: {"Retry-After": "1"},
    503: {"Retry-After": "5"},
}
_CODES = {
    "problem.dims": "invalid_dimension",
    "problem.options": "invalid_option",
    "snapshot": "invalid_snapshot",
}
_BROKEN = "invalid_json"
_MOST_CHARACTERS = 500  # of a message or field: it may repeat what was asked
_MISSING, _UNKNOWN = "missing", "extra_forbidden"  # as Pydantic names them
_BY_MSGSPEC = re.compile(
    r"(?:Object (?:missing required|(contains unknown)) field `(.*?)`|(.*?))"
    r"(?: - at (?:(`key`) in )?`\$\.?([\w.\[\]]*)`)?",
    re.DOTALL,
)
_MOST_LISTED = 30  # mistakes in a body, or in a question of one: Pydantic makes a kilobyte of each


class HttpError(Exception):
    """``code`` is for programs and stays, ``message`` is one sentence, ``field`` says where."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message[:_MOST_CHARACTERS])
        self.status, self.code, self.field = status, code, field and field[:_MOST_CHARACTERS]

    def under(self, place: str) -> "HttpError":
        """The same of a part of what was sent."""
        field = f"{place}.{self.field}" if self.field else place
        return HttpError(self.status, self.code, str(self), field)

    def encoded(self) -> bytes:
        envelope = {"error": {"code": self.code, "message": str(self), "field": self.field}}
        return json.dumps(envelope).encode()


def error_response(scope: Scope, error: HttpError) -> Response:
    """JSON, unless ``error_page`` of the state makes a page of it for a browser that wants one."""
    headers = SAFE_HEADERS | _HEADERS.get(error.status, {})
    page: Response | None = scope["state"]["error_page"](scope, error.status, str(error))
    if page is None:
        return Response(error.encoded(), error.status, headers, "application/json")
    page.headers.update(_HEADERS.get(error.status, {}))
    return page


def unavailable(error: StoreError) -> HttpError:
    """The database is gone. What it says itself may name hosts and files: it is for the log."""
    _log.warning("the database cannot be used: %s", error)
    message = "the database cannot be used: try again later"
    return HttpError(503, "database_unavailable", message)


async def answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    return error_response(request.scope, error)


async def answer_invalid(request: Request, error: Exception) -> Response:
    """What FastAPI found wrong with a call."""
    assert isinstance(error, RequestValidationError)
    if isinstance(error.body, bytes):  # it was not read as JSON because it was not called that
        wrong = HttpError(415, "not_json", "send JSON, with Content-Type: application/json")
        return error_response(request.scope, wrong)
    return error_response(request.scope, invalid(error.errors(), error.body, skip=1))


def not_valid(error: ValidationError, text: bytes) -> HttpError:
    """What Pydantic found wrong with this JSON: listed only where that is no megabytes of it."""
    if (count := error.error_count()) > _MOST_LISTED:
        return HttpError(422, "invalid_field", f"{count} parts of it are wrong or unknown")
    errors = error.errors(include_url=False, include_context=False)
    sent = from_json(text) if errors[0]["loc"] else None  # all of it is wrong, or is no JSON
    return invalid(errors, sent)


def invalid(errors: Sequence[Any], sent: Any, skip: int = 0) -> HttpError:
    """The first of what Pydantic found wrong with ``sent``; ``skip``: parts of its place that are
    no part of that."""
    first = cast(ErrorDetails, errors[0])
    field = _field(first, first["loc"][skip:], sent)
    if first["type"] == "json_invalid" or (first["type"] == _MISSING and not field):
        return broken_json()
    same = takewhile(lambda error: _field(error, error["loc"][skip:], sent) == field, errors)
    said = ", or: ".join(
        dict.fromkeys(error["msg"] for error in same)
    )  # of each kind that it may be
    return _wrong(first["type"], field, said)


def unreadable(error: Exception) -> HttpError:
    """What msgspec found wrong: it ends at the first mistake, and has the place in its text."""
    if not isinstance(error, msgspec.ValidationError):
        return broken_json()
    text, most = str(error), _MOST_CHARACTERS
    match = _BY_MSGSPEC.fullmatch(text[:most] + text[most:][-most:])  # a name may be most of it
    assert match is not None  # it takes any text
    unknown, name, said, is_key, place = match.groups("")
    field = ".".join(filter(None, (place.replace("[...]", ""), name)))
    kind = "" if said else _UNKNOWN if unknown else _MISSING
    return _wrong(kind, field, f"{said} as a name" if is_key else said)


def broken_json() -> HttpError:
    return HttpError(400, _BROKEN, "the body is not JSON")


def _field(error: ErrorDetails, place: Sequence[int | str], sent: Any) -> str:
    """As it was sent: Pydantic names the members of a union too."""
    field, is_body = "", isinstance(sent, dict | list)
    for number, part in enumerate(place, 1):
        if isinstance(sent, dict) and part in sent:
            field, sent = f"{field}.{part}", sent[part]
        elif isinstance(sent, list) and isinstance(part, int) and part < len(sent):
            field, sent = f"{field}[{part}]", sent[part]
        elif not is_body or (error["type"] == _MISSING and number == len(place)):
            field = f"{field}.{part}"
    return field.removeprefix(".")


def _wrong(kind: str, field: str, said: str) -> HttpError:
    known = (code for place, code in _CODES.items() if field.startswith(place))
    code, message = next(known, "invalid_field"), f"{field or 'the body'}: {said}"
    if kind == _MISSING:
        code, message = "missing_field", f"{field} is missing"
    elif kind == _UNKNOWN:
        message = f"{field} is unknown: leave it out, or mend its name"
    return HttpError(422, code, message, field or None)


async def answer_framework_error(request: Request, error: Exception) -> Response:
    """What Starlette refuses, unknown paths and methods, and what FastAPI cannot read as JSON: text
    that is no Unicode, numbers of thousands of digits, brackets within brackets for ever."""
    assert isinstance(error, HTTPException)
    code = {400: _BROKEN, 404: "not_found", 405: "method_not_allowed"}.get(
        error.status_code, "refused"
    )
    wrong = HttpError(error.status_code, code, str(error.detail))
    answer = error_response(request.scope, wrong)
    answer.headers.update(error.headers or {})
    if error.status_code == 405:  # the route that refused knows its own methods only
        answer.headers["Allow"] = ", ".join(sorted(_methods(request)))
    return answer


def _methods(request: Request) -> set[str]:
    path = request.scope["path"]
    here = (route for route in request.app.state.routes if route.path_regex.match(path))
    methods = {method for route in here for method in route.methods}
    return methods | {"HEAD"} if "GET" in methods else methods


T = TypeVar("T")

_READERS = 6
_WRITERS = 2  # SQLite has one writer, and PostgreSQL one publisher: more would only wait there


class DatabaseThreads:
    """What writes may wait for a lock. It has threads of its own, so that it holds up neither what
    reads nor newer snapshots; who waits for longer than ``wait_s`` is told so. ``is_up``: whether
    the last look at the database succeeded; ``takes_writes``: whether the last write did;
    ``is_whole``: whether it has all its tables."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._readers = ThreadPoolExecutor(_READERS, "reads")
        self._writers = ThreadPoolExecutor(_WRITERS, "writes")
        self.is_up = self.takes_writes = self.is_whole = True

    async def read(self, work: Callable[..., T], *arguments: Any) -> T:
        return await self._within(self._readers, partial(work, *arguments))

    async def write(self, work: Callable[..., T], *arguments: Any) -> T:
        """Raises ``HttpError``; work that has begun by then may still be done: so what is asked for
        again must change nothing."""
        try:
            written = await self._within(self._writers, partial(work, *arguments))
        except HttpError as error:
            self.takes_writes = error.status != 503
            raise
        self.takes_writes = True
        return written

    def close(self) -> None:
        """Waits for what has begun."""
        for pool in (self._readers, self._writers):
            pool.shutdown(cancel_futures=True)

    async def _within(self, pool: Executor, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(self._wait_s):
                return await asyncio.get_running_loop().run_in_executor(pool, work)
        except TimeoutError as error:
            late = StoreError(f"it was not done within {self._wait_s:g} s")
            raise unavailable(late) from error
        except UnstorableError as error:
            message = (
                "a text or number that was given cannot be kept: leave out what nobody can read"
            )
            raise HttpError(422, "invalid_field", message) from error
        except StoreError as error:
            raise unavailable(error) from error


_SKEW = timedelta(minutes=5)
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # a suspended machine counts


def booted_at() -> datetime:
    """By the clock of this machine, of which nobody knows whether it is right: another time than
    before says that it was set."""
    return datetime.now(UTC) - timedelta(seconds=time.clock_gettime(_SINCE_BOOT))


def troubles(state: Any) -> Iterator[str]:
    """``state``: of the process. Nothing where all is well. No host and no file is named: anybody
    may ask."""
    if not state.database.is_up:
        yield "The database cannot be read: lookups are answered from memory."
    if not state.database.takes_writes:
        yield "The last write to the database failed: the log of the service says why."
    if not state.database.is_whole:
        yield "The database has lost tables: `autotune db check` names them. Put back a copy."
    _, at = state.snapshots.went_back
    if at is not None:
        lost = f"The database lost snapshots, seen {at:%Y-%m-%d %H:%M} UTC: it was restored, or"
        yield f"{lost} a replica that lags took over. Push them again."
    now, made_at = datetime.now(UTC), state.snapshots.current.made_at
    if abs(booted_at() - state.booted_at) > _SKEW:
        yield f"The clock of this machine was set while the service ran: now it says {now:%F} UTC."
    if made_at and made_at - now > _SKEW:
        yield (
            f"The newest snapshot is of {made_at:%F}, and the clock of this machine says {now:%F}: "
            "set it, or that of who published."
        )
