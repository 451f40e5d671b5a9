"""Who may call what: reading is open unless it is closed, writing needs a token.

POST, PUT, PATCH and DELETE write, but for the lookup, and need a token, whatever their route says:
a new route cannot be forgotten.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from autotune.domain.token import READER, WRITER, Token
from autotune_db.audit import SqlTokens, digest_of
from autotune_service.errors import DatabaseThreads, HttpError
from autotune_service.middleware.body import check_call, headers_of
from autotune_service.settings import Settings

_REFUSAL_S = 0.25
_MOST_CALLERS = 100_000  # in one second; who comes later is not counted


class Throttle:
    """Counts by caller in seconds of the clock. ``limit`` 0: any number."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = limit, clock
        self._second = -1
        self._counts: dict[Hashable, int] = {}

    def is_used_up(self, caller: Hashable) -> bool:
        """Whether ``allows`` would say no; counts nothing."""
        fresh = self._second == int(self._clock())
        return bool(self._limit) and fresh and self._counts.get(caller, 0) >= self._limit

    def allows(self, caller: Hashable, calls: int = 1) -> bool:
        """``calls``: as how many it counts; the first of a second is allowed however much that
        is."""
        if not self._limit:
            return True
        second = int(self._clock())
        if second != self._second:
            self._second, self._counts = second, {}
        before = self._counts.get(caller, 0)
        if before or len(self._counts) < _MOST_CALLERS:
            self._counts[caller] = before + calls
        return before == 0 or before + calls <= self._limit


async def refuse_late() -> None:
    """Who asks again at once is answered so often only as there are connections for an address."""
    await asyncio.sleep(_REFUSAL_S)
    raise HttpError(429, "too_many_calls", "too many calls in this second: try again")


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


_ANY = "*"
_OWN = "localhost"


class HostsMiddleware:
    """Refuses calls whose ``Host`` is neither an address nor one of ``names``.

    A web page can have its own name lead to an address of its reader's network, the loopback
    address too, and then read what is there as if it were its own (DNS rebinding). It cannot do so
    with an address, nor with a name that is not its own. Starlette's ``TrustedHostMiddleware``
    knows no IPv6 addresses and takes names only.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app, self._names = app, names
        self._known: set[bytes] = set()  # a few: those that were answered

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            host = headers_of(scope).get(b"host")
            if host is not None and host not in self._known:
                self._check(host)
        return self._app(scope, receive, send)

    def _check(self, value: bytes) -> None:
        host = host_of(value.decode("latin-1"))
        if not (_is_address(host) or host in self._names or host.endswith("." + _OWN)):
            message = f"this service does not answer for {host[:100]}: name it with --hosts"
            raise HttpError(421, "unknown_host", message)
        if len(self._known) < 100:
            self._known.add(value)


def allowed_hosts(settings: Settings) -> frozenset[str] | None:
    """None: any. By default so, but on a loopback address that no proxy is in front of."""
    named = {host_of(name.strip()) for name in settings.hosts.split(",")} - {""}
    behind_proxy = bool(os.environ.get("FORWARDED_ALLOW_IPS"))
    if _ANY in named or (not named and (behind_proxy or not _is_loopback(settings.host))):
        return None
    return frozenset(named | {_OWN, settings.host.lower()})


def host_of(value: str) -> str:
    """Without port and brackets."""
    if _is_address(value):  # of IPv6, without brackets
        return value
    if value.startswith("["):
        return value[1:].partition("]")[0]
    return value.partition(":")[0].rstrip(".").lower()


def _is_loopback(host: str) -> bool:
    return host == _OWN or (_is_address(host) and ip_address(host).is_loopback)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
