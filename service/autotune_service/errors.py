"""What is not answered, in one envelope: ``{"error": {"code", "message", "field"}}``."""

import json
import logging
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from autotune.errors import StoreError
from autotune_service.middleware.logs import request_id
from autotune_service.pages.render import error_page

_log = logging.getLogger("autotune.service")

_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    429: {"Retry-After": "1"},
    503: {"Retry-After": "5"},
}
_MOST_CHARACTERS = 500  # of a message: it may repeat what was asked


class Refusal(Exception):  # noqa: N818  (most are no error of the program)
    """``code`` is for programs and stays, ``message`` is one sentence, ``field`` says where."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.field = status, code, field

    def data(self) -> dict[str, Any]:
        message = str(self)[:_MOST_CHARACTERS]
        return {"error": {"code": self.code, "message": message, "field": self.field}}

    def encoded(self) -> bytes:
        return json.dumps(self.data()).encode()

    def response(self, scope: Scope) -> Response:
        """A page for a browser that asked for one, else JSON."""
        headers = _HEADERS.get(self.status)
        page = error_page(scope, self.status, str(self)[:_MOST_CHARACTERS])
        if page is None:
            return Response(self.encoded(), self.status, headers, "application/json")
        page.headers.update(headers or {})
        return page


def unavailable(error: StoreError) -> Refusal:
    """The database is gone. What it says itself may name hosts and files: it is for the log."""
    _log.warning("the database cannot be used: %s", error)
    message = "the database cannot be used: try again later"
    return Refusal(503, "database_unavailable", message)


def bug() -> Refusal:
    """For an exception that nobody expected. What it says itself is for the log."""
    told = (
        f"this is a bug of the service: its log says more, with the request id {request_id.get()}"
    )
    return Refusal(500, "bug", told)


async def answer_bug(request: Request, _: Exception) -> Response:
    return bug().response(request.scope)


async def answer_refusal(request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, Refusal)
    return refusal.response(request.scope)
