"""Bodies, whole and within limits, before anything is made of them.

The headers of a call are read by name once for all: a scan for each would take longer than the
rest.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autotune_service.errors import HttpError

_HEADERS = "autotune.headers"
_ONCE = (
    b"authorization",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"cookie",
    b"host",
    b"sec-fetch-site",
)
"""A proxy may have judged a call by the other of two. The last ``X-Forwarded-For`` counts: some
proxies write their own behind those that callers made up."""


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """The last of each name; made once for a call."""
    headers: dict[bytes, bytes] | None = scope.get(_HEADERS)
    if headers is None:
        headers = scope[_HEADERS] = dict(scope["headers"])
    return headers


MOST_PARAMETERS = 100
"""In the query of a call: reading many takes longer than its answer."""


def check_call(scope: Scope) -> None:
    """Raises ``HttpError`` for a header twice that decides who may do what, and for many
    parameters. From here on cookies are in ``headers_of`` alone: FastAPI would read them for each
    call, and some versions of Python need a second for one of 30 kB."""
    headers = headers_of(scope)
    if len(headers) < len(scope["headers"]):
        names = [name for name, _ in scope["headers"]]
        for name in _ONCE:
            if names.count(name) > 1:
                text = name.decode()
                raise HttpError(400, "doubled_header", f"{text} is given twice: send it once", text)
    if scope["query_string"].count(b"&") >= MOST_PARAMETERS:
        message = f"give at most {MOST_PARAMETERS} parameters"
        raise HttpError(422, "too_many_parameters", message)
    if b"cookie" in headers:
        scope["headers"] = [header for header in scope["headers"] if header[0] != b"cookie"]


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
            first = await receive()
            if first["type"] == "http.disconnect" or first.get("more_body", False):
                first = await _whole(first, receive, limit)
            elif len(first.get("body", b"")) > limit:
                raise _too_large(limit)
            receive = _again(first, receive)
        await self._app(scope, receive, send)


def _check_head(scope: Scope, limit: int) -> None:
    headers = headers_of(scope)
    if b"upgrade" in headers and _changes_protocol(scope):  # Java's client does at first
        message = "the body was not read, for the call has Upgrade: use plain HTTP/1.1"
        raise HttpError(400, "upgrade", message)
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    if headers.get(b"content-encoding", b"identity") != b"identity":
        message = "the body is compressed: send it as it is, without Content-Encoding"
        raise HttpError(415, "compressed_body", message)


def _changes_protocol(scope: Scope) -> bool:
    """Any of the lines counts for the parser, which ends there; without one it reads on."""
    lines = [value for name, value in scope["headers"] if name == b"connection"]
    return b"upgrade" in [option.strip().lower() for option in b",".join(lines).split(b",")]


async def _whole(message: Message, receive: Receive, limit: int) -> Message:
    """Of one that comes in pieces, which begin with ``message``."""
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        if message["type"] == "http.disconnect":
            raise HttpError(400, "disconnected", "the request ended early")
        chunks.append(message.get("body", b""))
        size, more = size + len(chunks[-1]), message.get("more_body", False)
        if size > limit:
            raise _too_large(limit)
        message = await receive() if more else message
    return {"type": "http.request", "body": b"".join(chunks), "more_body": False}


def _again(body: Message, receive: Receive) -> Receive:
    """``body``, then what the connection says."""
    handed_on = False

    async def receive_whole() -> Message:
        nonlocal handed_on
        if handed_on:
            return await receive()
        handed_on = True
        return body

    return receive_whole


def _too_large(limit: int) -> HttpError:
    return HttpError(
        413, "body_too_large", f"the body is larger than {limit} bytes: send it in parts"
    )
