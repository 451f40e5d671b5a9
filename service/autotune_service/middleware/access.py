"""Who may call what: reading is open unless it is closed, writing needs a token.

POST, PUT, PATCH and DELETE write, but for the lookup, and need a token, whatever their route says:
a new route cannot be forgotten.
"""

import asyncio
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

from starlette.types import ASGIApp, Receive, Scope, Send

from autotune.domain.token import READER, WRITER, Token
from autotune.ports import Tokens
from autotune_db.tokens import digest_of
from autotune_service.database import DatabaseThreads
from autotune_service.errors import HttpError

COOKIE = "autotune_token"
"""Holds the token of a browser where reading is closed; worth nothing for what writes."""

LOOKUP = "/v1/lookup"
"""Reads, although it is a POST."""

_SCHEME = "bearer "
_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_OPEN = ("/healthz", "/readyz", "/metrics")
"""Open also where reading is closed, as scripts and styles are: they tell nothing of what is
tuned."""
_STATIC = "/static/"


def writes(scope: Scope) -> bool:
    return scope["method"] in _WRITES and scope["path"] != LOOKUP


class AccessMiddleware:
    """Lets through who may call; ``scope["state"]["token"]`` says who writes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            access: Access = scope["app"].state.access
            if writes(scope):
                scope.setdefault("state", {})["token"] = await access.writer(scope)
            elif not _is_open(scope["path"]):
                access.check_reader(scope)
        await self._app(scope, receive, send)


def _is_open(path: str) -> bool:
    return path in _OPEN or path.startswith(_STATIC)


class Access:
    """Readers are known from memory, a refresh old; a writer is looked up at each call, so that a
    token is worth nothing from the moment it is revoked."""

    def __init__(self, tokens: Tokens, database: DatabaseThreads, *, closed: bool) -> None:
        self._tokens, self._database, self._closed = tokens, database, closed
        self._known: Mapping[str, Token] = {}

    async def refresh(self) -> None:
        """Raises ``StoreError``."""
        if self._closed:
            self._known = await asyncio.to_thread(self._tokens.valid)

    def check_reader(self, scope: Scope) -> None:
        """Raises ``HttpError`` where reading is closed to the caller."""
        if self._closed:
            secret = _cookie(scope) if scope["method"] in ("GET", "HEAD") else None
            _require(self._known.get(digest_of(secret or secret_of(scope))), READER)

    async def writer(self, scope: Scope) -> Token:
        """Who calls. Raises ``HttpError`` for one who may not write."""
        found = await self._database.read(self._tokens.find, secret_of(scope))
        return _require(found, WRITER)


def _require(found: Token | None, role: str) -> Token:
    if found is None:
        raise HttpError(401, "invalid_token", "the token is unknown, expired or revoked")
    require(found, role)
    return found


def require(token: Token, role: str) -> None:
    """Raises ``HttpError`` for a role that is too low."""
    if not token.may(role):
        message = f"this needs a token with the role {role}, yours has {token.role}"
        raise HttpError(403, "role_too_low", message)


def secret_of(scope: Scope) -> str:
    """The bearer token of a call. Raises ``HttpError``."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            text: str = value.decode("latin-1")
            if text.lower().startswith(_SCHEME):
                return text[len(_SCHEME) :].strip()
    raise HttpError(401, "missing_token", "give a token: Authorization: Bearer …")


def _cookie(scope: Scope) -> str | None:
    """What a browser keeps of ``GET /session``; a header goes before it."""
    headers = dict(scope["headers"])
    if b"authorization" in headers:
        return None
    try:
        found = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
    except CookieError:
        return None
    return found.value if found else None
