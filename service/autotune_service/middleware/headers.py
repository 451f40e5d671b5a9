"""The headers of a call by name, for all that look at some: a scan for each would take longer than
the rest of what they do."""

from starlette.types import Scope

_HEADERS = "autotune.headers"


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """The last of each name; made once for a call."""
    found: dict[bytes, bytes] | None = scope.get(_HEADERS)
    if found is None:
        found = scope[_HEADERS] = dict(scope["headers"])
    return found
