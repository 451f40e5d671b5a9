"""How many calls a caller may make in a second, as how many each counts, and what is answered to
more. How large a call may be is in ``body.py``."""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Receive, Scope, Send

from autotune_service.middleware.access import LOOKUP, address_of, is_open, writes
from autotune_service.middleware.body import MAX_BYTES, headers_of
from autotune_service.middleware.throttle import Throttle, refuse_late

_BYTES = 4 << 10  # of questions, some thirty: as much work as one call
_WRONG_BYTES = 2 << 10  # of a lookup that is wrong: as much work as one call
_PAGE = 100  # a page, a list or an export takes as long as a hundred lookups
_LIGHT = {"/v1/configs/": 1, "/v1/jobs/": 10, "/v1/snapshots/": 10}  # a snapshot is encoded once


_READS = "autotune.reads"
"""In the scope of a lookup: where it is counted."""


class LimitsMiddleware:
    """Calls that read and calls that write; by token where one was looked at, else by address.

    What is open to everybody is counted by itself: a probe is answered however many others read.
    """

    def __init__(self, app: ASGIApp, reads_per_second: int, writes_per_second: int) -> None:
        self._app = app
        self._reads, self._writes = Throttle(reads_per_second), Throttle(writes_per_second)
        self._open = Throttle(reads_per_second)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and not self._allows(scope, caller_of(scope)):
            return refuse_late()
        return self._app(scope, receive, send)

    def _allows(self, scope: Scope, caller: int | str) -> bool:
        if scope["path"] == LOOKUP:  # the busiest first
            scope[_READS] = self._reads
            length = headers_of(scope).get(b"content-length", b"")
            size = int(length) if length.isdigit() else MAX_BYTES
            return self._reads.allows(caller, 1 + size // _BYTES)
        if writes(scope):
            return self._writes.allows(caller)
        path: str = scope["path"]
        if is_open(path):
            return self._open.allows(caller)
        light = (calls for start, calls in _LIGHT.items() if path.startswith(start))
        return self._reads.allows(caller, next(light, _PAGE))


def count_wrong(scope: Scope, size: int) -> None:
    """As more calls counts a lookup of which some parts are wrong, once that is known."""
    reads: Throttle = scope[_READS]
    reads.allows(caller_of(scope), size // _WRONG_BYTES)


def caller_of(scope: Scope) -> int | str:
    token = scope["state"].get("token")
    return token.number if token else address_of(scope)
