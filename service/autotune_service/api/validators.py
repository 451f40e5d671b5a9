"""Answers that a caller may have already."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated

from fastapi import Header
from starlette.responses import Response

IfNoneMatch = Annotated[str | None, Header()]


def tagged(
    known: str | None, content: bytes, media_type: str, headers: Mapping[str, str]
) -> Response:
    """With an ETag; 304 where ``known``, an ``If-None-Match``, names it."""
    tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, **headers}
    if tag in [one.strip().removeprefix("W/") for one in (known or "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)
