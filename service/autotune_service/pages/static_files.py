"""Scripts and styles: ours, Swagger UI, and the part of plotly.js that draws lines, dots and heat
maps. Compressed once: Starlette's ``GZipMiddleware`` would compress a megabyte of it anew for each
browser, and wrap every lookup.
"""

import gzip
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.types import Scope

from autotune_service.errors import HttpError
from autotune_service.middleware.body import headers_of

assets = APIRouter(include_in_schema=False)

FILES = {
    **dict.fromkeys(("dashboard.css", "dashboard.js", "theme.js", "icon.svg", "docs.js"), ""),
    **dict.fromkeys(("swagger-ui.css", "swagger-ui-bundle.js"), "swagger-ui"),
    "plotly-cartesian.min.js": "plotly",
}
"""By name the folder of each. What others have made is as it was published: see SHA256SUMS."""
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


_FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Asset:
    """``tag`` changes with the content, and is a part of its address."""

    kind: str
    tag: str
    plain: bytes
    packed: bytes


@cache
def asset(name: str) -> Asset:
    """Read and compressed at the first call."""
    static = files("autotune_service.pages") / "static"
    plain = (static / FILES[name] / name if FILES[name] else static / name).read_bytes()
    tag = blake2b(plain, digest_size=8).hexdigest()
    kind = _TYPES[Path(name).suffix]
    return Asset(kind, tag, plain, gzip.compress(plain, 6, mtime=0))


def address(name: str) -> str:
    """Where a page finds it; another one for other content, so that it may be kept for ever."""
    return f"/static/{asset(name).tag}/{name}"


def prepare() -> None:
    """Before the first call: compressing plotly.js takes a moment."""
    for name in FILES:
        asset(name)


@assets.get("/static/{tag}/{name}")
async def static(request: Request, tag: str, name: str) -> Response:
    if name not in FILES:
        raise HttpError(404, "not_found", "there is no such file")
    file = asset(name)
    headers = {
        "ETag": f'"{file.tag}"',
        "Vary": "Accept-Encoding",
        "Cache-Control": _FOREVER if tag == file.tag else "no-cache",
    }
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if takes_gzip(request.scope):
        headers["Content-Encoding"] = "gzip"
        return Response(file.packed, headers=headers, media_type=file.kind)
    return Response(file.plain, headers=headers, media_type=file.kind)


def takes_gzip(scope: Scope) -> bool:
    return b"gzip" in headers_of(scope).get(b"accept-encoding", b"")
