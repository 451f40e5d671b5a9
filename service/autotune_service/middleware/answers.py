"""What the answers of all routes but the lookup have in common."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autotune_service.errors import SAFE_HEADERS
from autotune_service.middleware.calls import STREAMED


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
