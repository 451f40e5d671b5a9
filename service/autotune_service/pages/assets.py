"""The route of scripts and styles."""

from fastapi import APIRouter, Request, Response

from autotune_service.errors import HttpError
from autotune_service.pages.render import header
from autotune_service.pages.static_files import FILES, asset

assets = APIRouter(include_in_schema=False)

_FOREVER = "public, max-age=31536000, immutable"


@assets.get("/static/{tag}/{name}")
async def static(request: Request, tag: str, name: str) -> Response:
    if name not in FILES:
        raise HttpError(404, "not_found", "there is no such file")
    found = asset(name)
    current = tag == found.tag
    headers = {
        "ETag": f'"{found.tag}"',
        "Vary": "Accept-Encoding",
        "Cache-Control": _FOREVER if current else "no-cache",
    }
    if f'"{found.tag}"' in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if b"gzip" in header(request.scope, b"accept-encoding"):
        headers["Content-Encoding"] = "gzip"
        return Response(found.packed, headers=headers, media_type=found.kind)
    return Response(found.plain, headers=headers, media_type=found.kind)
