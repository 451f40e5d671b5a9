"""How many calls a caller may make in a second."""

from starlette.types import ASGIApp, Receive, Scope, Send

from autotune_service.errors import HttpError
from autotune_service.middleware.access import writes
from autotune_service.middleware.throttle import Throttle


class LimitsMiddleware:
    """Calls that read and calls that write, each by address."""

    def __init__(self, app: ASGIApp, reads_per_second: int, writes_per_second: int) -> None:
        self._app = app
        self._reads, self._writes = Throttle(reads_per_second), Throttle(writes_per_second)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            throttle = self._writes if writes(scope) else self._reads
            if not throttle.allows(address_of(scope)):
                raise too_many_calls()
        await self._app(scope, receive, send)


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def too_many_calls() -> HttpError:
    return HttpError(429, "too_many_calls", "too many calls in this second: try again")
