"""What a middleware refuses, and bugs: each becomes an answer."""

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autotune_service.errors import HttpError, error_response
from autotune_service.middleware.request_id import request_id

_log = logging.getLogger("autotune.service")


class ErrorMiddleware:
    """Answers every exception from within, unless an answer has begun: then it goes on to the
    server, which ends the connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception as error:
            if begun or scope["type"] != "http":
                raise
            answer = error_response(scope, error if isinstance(error, HttpError) else _bug())
            await answer(scope, receive, send)


def _bug() -> HttpError:
    """For an exception that nobody expected. What it says itself is for the log."""
    _log.exception("a call failed")
    message = (
        f"this is a bug of the service: its log says more, with the request id {request_id.get()}"
    )
    return HttpError(500, "bug", message)
