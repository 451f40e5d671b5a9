"""How many calls a caller may make in a second."""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Receive, Scope, Send

from autotune_service.middleware.access import address_of, too_many_calls, writes
from autotune_service.middleware.throttle import Throttle


class LimitsMiddleware:
    """Calls that read and calls that write; by token where one was looked at, else by address."""

    def __init__(self, app: ASGIApp, reads_per_second: int, writes_per_second: int) -> None:
        self._app = app
        self._reads, self._writes = Throttle(reads_per_second), Throttle(writes_per_second)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            throttle = self._writes if writes(scope) else self._reads
            token = scope["state"].get("token")
            if not throttle.allows(token.number if token else address_of(scope)):
                raise too_many_calls()
        return self._app(scope, receive, send)
