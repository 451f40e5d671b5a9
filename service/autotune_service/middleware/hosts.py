"""For which host names a service answers.

A web page can have its own name lead to an address of its reader's network, the loopback address
too, and then read what is there as if it were its own (DNS rebinding). It cannot do so with an
address, nor with a name that is not its own. Starlette's ``TrustedHostMiddleware`` knows no IPv6
addresses and takes names only.
"""

import os
from collections.abc import Awaitable
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from autotune_service.errors import HttpError
from autotune_service.middleware.body import headers_of
from autotune_service.settings import Settings

_ANY = "*"
_OWN = "localhost"


class HostsMiddleware:
    """Refuses calls whose ``Host`` is neither an address nor one of ``names``."""

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
