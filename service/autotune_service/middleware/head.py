"""HEAD wherever GET is."""

from starlette.types import ASGIApp, Receive, Scope, Send

from autotune_service.middleware.calls import STREAMED


class HeadMiddleware:
    """Has it answered as GET; the server, which knows the method, leaves the body out."""

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
