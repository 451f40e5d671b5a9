"""What the routes share: the state that the lifespan made, and how its work is awaited."""

from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Header, Query, Request, Response
from fastapi.security import HTTPBearer
from starlette.types import Scope

from autotune.domain.browsing import Author
from autotune.domain.errors import StoreError
from autotune.domain.token import ADMIN, Token
from autotune_db import SqlStore
from autotune_db.audit import written_by
from autotune_service.api.schema import Error
from autotune_service.errors import DatabaseThreads, HttpError, unavailable
from autotune_service.middleware.access import Access, address_of, require, secret_of
from autotune_service.snapshot_cache import SnapshotCache

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=1_000)]
Responses = dict[int | str, dict[str, Any]]
ERRORS: Responses = {
    code: {"model": Error} for code in (400, 401, 403, 404, 408, 413, 415, 422, 429, 503)
}

NOT_MODIFIED = {"description": "It is what the caller has."}

BEARER = Depends(HTTPBearer(auto_error=False))
"""For OpenAPI: the middleware has looked at the token."""


def refuse_unknown_parameters(request: Request) -> None:
    """Raises ``HttpError``."""
    fields = request.scope["route"].dependant.query_params
    refuse_parameters_but(request, {field.alias for field in fields})


def refuse_parameters_but(
    request: Request, known: Collection[str], *, often: Collection[str] = ()
) -> None:
    """Raises ``HttpError``. ``often``: those of them that may be given more than once."""
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in known:
            message = f"{name} is unknown: leave it out, or mend its name"
            raise HttpError(422, "invalid_field", message, name)
        if name not in often and given.count(name) > 1:
            raise HttpError(422, "invalid_field", f"{name} is given twice", name)


KNOWN_PARAMETERS = Depends(refuse_unknown_parameters)
"""Else one that is misspelt would be answered as if it were not there."""


def must_be_admin(request: Request) -> None:
    """Of a route that reads, on an open service too. Raises ``HttpError``."""
    access: Access = request.state.access
    token = access.reader(secret_of(request.scope))
    if token is None:
        raise HttpError(401, "invalid_token", "this needs a token with the role admin")
    require(token, ADMIN)


ADMIN_ONLY = Depends(must_be_admin)


async def snapshots_of(scope: Scope, *, claimed: bool | None = False) -> SnapshotCache:
    """``claimed``: for a caller who accepts what is not proven. Raises ``HttpError``."""
    cache: SnapshotCache = scope["state"]["claimed" if claimed else "snapshots"]
    try:
        await cache.load()
    except StoreError as error:
        raise unavailable(error) from error
    return cache


def store(request: Request) -> SqlStore:
    return cast(SqlStore, request.state.store)


def caller(request: Request) -> Token:
    """Who writes: known since the call passed the middleware."""
    return cast(Token, request.state.token)


async def ask(request: Request, work: Callable[..., T], *arguments: Any) -> T:
    """Work that reads the database. Raises ``HttpError``."""
    return await cast(DatabaseThreads, request.state.database).read(work, *arguments)


async def to_write(request: Request, work: Callable[..., T], *arguments: Any) -> T:
    """Work that writes to the database, in the name of the caller. Raises ``HttpError``."""
    token = caller(request)
    author = Author(name=token.name, token=token.number, address=address_of(request.scope))

    def write() -> T:
        with written_by(author):
            return work(*arguments)

    return await cast(DatabaseThreads, request.state.database).write(write)


IfNoneMatch = Annotated[str | None, Header()]


def tagged(
    known: str | None, content: bytes, media_type: str, headers: Mapping[str, str]
) -> Response:
    """With an ETag; 304 where ``known``, an ``If-None-Match``, names it."""
    tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, **headers}
    if tag in [each_tag.strip().removeprefix("W/") for each_tag in (known or "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)
