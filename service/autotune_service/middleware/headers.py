"""The headers of a call by name, for all that look at some: a scan for each would take longer than
the rest of what they do."""

from starlette.types import Scope

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


def refuse_doubled(scope: Scope) -> None:
    """Raises ``HttpError`` for a header twice that decides who may do what."""
    if len(headers_of(scope)) < len(scope["headers"]):
        names = [name for name, _ in scope["headers"]]
        for name in _ONCE:
            if names.count(name) > 1:
                text = name.decode()
                raise HttpError(400, "doubled_header", f"{text} is given twice: send it once", text)
