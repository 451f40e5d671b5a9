"""The id of a call: in its answer, and in every line of the log that belongs to it."""

import os
import re
from contextvars import ContextVar
from itertools import count

from starlette.types import Scope

from autotune_service.middleware.headers import headers_of

request_id: ContextVar[str] = ContextVar("request_id", default="")

HEADER = b"x-request-id"
_PROCESS = os.urandom(4).hex()
_numbers = count()
_FORM = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def new_request_id(scope: Scope) -> str:
    """The caller's own ``X-Request-ID`` where it has the form of one, else another; the log has it
    from now on."""
    own = _given(scope) or f"{_PROCESS}{next(_numbers):08x}"
    request_id.set(own)
    return own


def _given(scope: Scope) -> str | None:
    given = headers_of(scope).get(HEADER)
    return given.decode() if given is not None and _FORM.fullmatch(given) else None
