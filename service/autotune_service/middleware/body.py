"""Bodies, whole and within limits, before anything is made of them."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autotune_service.errors import HttpError

MAX_BYTES = 1 << 20
MAX_UPLOAD_BYTES = 16 << 20
_UPLOAD = "/v1/results"
_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")


class BodyMiddleware:
    """Hands on a body in one piece; one that is too large ends here. How long one
    may take is for the connection: see ``autotune_service.connections``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in _WITHOUT_BODY:
            limit = MAX_UPLOAD_BYTES if scope["path"] == _UPLOAD else MAX_BYTES
            _check_head(scope, limit)
            receive = _again(await _read(receive, limit), receive)
        await self._app(scope, receive, send)


def _check_head(scope: Scope, limit: int) -> None:
    """As far as it tells."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise _too_large(limit)
        if name == b"content-encoding" and value != b"identity":
            message = "the body is compressed: send it as it is, without Content-Encoding"
            raise HttpError(415, "compressed_body", message)


async def _read(receive: Receive, limit: int) -> bytes:
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError(400, "disconnected", "the request ended early")
        chunks.append(message.get("body", b""))
        size, more = size + len(chunks[-1]), message.get("more_body", False)
        if size > limit:
            raise _too_large(limit)
    return b"".join(chunks)


def _again(body: bytes, receive: Receive) -> Receive:
    """``body`` as one message, then what the connection says."""
    handed_on = False

    async def receive_whole() -> Message:
        nonlocal handed_on
        if handed_on:
            return await receive()
        handed_on = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_whole


def _too_large(limit: int) -> HttpError:
    return HttpError(
        413, "body_too_large", f"the body is larger than {limit} bytes: send it in parts"
    )
