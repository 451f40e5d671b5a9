"""What a middleware refuses, and bugs: each becomes an answer."""

import logging

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from autotune_service.errors import HttpError, error_response
from autotune_service.middleware.calls import STATUS, request_id

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
