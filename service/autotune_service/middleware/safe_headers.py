"""Headers that keep a browser from doing anything with an answer but showing it."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_POLICY = b"content-security-policy"
_NOTHING = (_POLICY, b"default-src 'none'; frame-ancestors 'none'")


class SafeHeadersMiddleware:
    """An answer that brings no policy of its own, as pages do, may load and run nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), _NO_SNIFFING]
                if all(name != _POLICY for name, _ in headers):
                    headers.append(_NOTHING)
                message["headers"] = headers
            await send(message)

        await self._app(scope, receive, send_safe if scope["type"] == "http" else send)
