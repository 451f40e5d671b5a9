"""Who may call what: reading is open unless it is closed, writing needs a token.

POST, PUT, PATCH and DELETE write, but for the lookup, and need a token, whatever their route says:
a new route cannot be forgotten.
"""

import asyncio
from collections.abc import Awaitable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from autotune.domain.token import READER, WRITER, Token
from autotune_db.tokens import SqlTokens, digest_of
from autotune_service.errors import DatabaseThreads, HttpError
from autotune_service.middleware.body import check_call, headers_of
from autotune_service.middleware.throttle import Throttle, refuse_late

COOKIE = "autotune_token"
"""Holds the token of a browser where reading is closed; worth nothing for what writes."""

LOOKUP = "/v1/lookup"
"""Reads, although it is a POST."""

_SCHEME = "bearer "
_MAKE = "who runs the service makes one with `autotune token create`"
_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_OWN_SITE = (b"same-origin", b"none")
_OPEN = ("/healthz", "/readyz", "/metrics")
"""Open also where reading is closed, as scripts and styles are: they tell nothing of what is
tuned."""
_STATIC = "/static/"
_FAILURES_PER_SECOND = 20


def writes(scope: Scope) -> bool:
    return scope["method"] in _WRITES and scope["path"] != LOOKUP


class AccessMiddleware:
    """Lets through who may call; ``scope["state"]["token"]`` says who that is, where it matters.

    Tokens that are not valid are counted by address: once there were many in this second, the
    database is asked for known ones only, so that who guesses holds up nobody.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._failures = app, Throttle(_FAILURES_PER_SECOND)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            check_call(scope)
            if scope["method"] in _WRITES:
                _check_site(scope)
            access: Access = scope["state"]["access"]
            if writes(scope) or (access.closed and not is_open(scope["path"])):
                return self._with_token(access, scope, receive, send)
        return self._app(scope, receive, send)

    async def _with_token(
        self, access: "Access", scope: Scope, receive: Receive, send: Send
    ) -> None:
        scope["state"]["token"] = await self._caller(scope, access)
        await self._app(scope, receive, send)

    async def _caller(self, scope: Scope, access: "Access") -> Token:
        address, secret = address_of(scope), secret_of(scope)
        if self._failures.is_used_up(address) and access.reader(secret) is None:
            await refuse_late()
        token = await access.writer(secret) if writes(scope) else access.reader(secret)
        if token is None:
            self._failures.allows(address)
            raise HttpError(
                401, "invalid_token", f"the token is unknown, expired or revoked: {_MAKE}"
            )
        require(token, WRITER if writes(scope) else READER)
        return token


def _check_site(scope: Scope) -> None:
    """Browsers say it where the service has HTTPS or a loopback address, and nowhere else."""
    if headers_of(scope).get(b"sec-fetch-site", b"none") not in _OWN_SITE:
        raise HttpError(403, "cross_site", "pages of other sites may not send anything here")


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def is_open(path: str) -> bool:
    return path in _OPEN or path.startswith(_STATIC)


class Access:
    """Readers are known from memory, a refresh old; a writer is looked up at each call, so that a
    token is worth nothing from the moment it is revoked."""

    def __init__(self, tokens: SqlTokens, database: DatabaseThreads, *, closed: bool) -> None:
        self._tokens, self._database, self.closed = tokens, database, closed
        self._known: Mapping[str, Token] = {}

    async def refresh(self) -> None:
        """Raises ``StoreError``."""
        self._known = await asyncio.to_thread(self._tokens.valid)

    def reader(self, secret: str) -> Token | None:
        """Where it was a valid token a moment ago."""
        return self._known.get(digest_of(secret))

    async def writer(self, secret: str) -> Token | None:
        """Raises ``HttpError`` where the database cannot be asked."""
        return await self._database.read(self._tokens.find, secret)


def require(token: Token, role: str) -> None:
    """Raises ``HttpError`` for a role that is too low."""
    if not token.may(role):
        message = f"this needs a token with the role {role}, yours has {token.role}"
        raise HttpError(403, "role_too_low", message)


def secret_of(scope: Scope) -> str:
    """The bearer token of a call, or the cookie of one that reads. Raises ``HttpError``."""
    cookie = cookie_of(scope) if scope["method"] in ("GET", "HEAD") else None
    if cookie:
        return cookie
    text = headers_of(scope).get(b"authorization", b"").decode("latin-1")
    if text.lower().startswith(_SCHEME):
        return text[len(_SCHEME) :].strip()
    raise HttpError(401, "missing_token", f"give a token (Authorization: Bearer …): {_MAKE}")


def cookie_of(scope: Scope) -> str | None:
    """What a browser keeps of ``GET /session``; a header goes before it."""
    headers = headers_of(scope)
    if b"authorization" in headers:
        return None
    for cookie in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = cookie.strip().partition("=")
        if name == COOKIE:
            return value or None
    return None
