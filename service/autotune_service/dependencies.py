"""What the routes share: the parts of the application, and how its work is awaited."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Query, Request
from fastapi.security import HTTPBearer

from autotune.domain.token import Token
from autotune_db import SqlStore
from autotune_service.api.schema import Error
from autotune_service.database import Work
from autotune_service.snapshot_cache import Held

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=1_000)]
Responses = dict[int | str, dict[str, Any]]
REFUSED: Responses = {
    code: {"model": Error} for code in (400, 401, 403, 404, 408, 413, 422, 429, 503)
}

TOLD = Depends(HTTPBearer(auto_error=False))
"""For OpenAPI: the front has looked at the token."""


def held(request: Request) -> Held:
    return cast(Held, request.app.state.held)


def store(request: Request) -> SqlStore:
    return cast(SqlStore, request.app.state.store)


def caller(request: Request) -> Token:
    """Who writes: known since the call passed the front."""
    return cast(Token, request.state.token)


async def ask(request: Request, work: Callable[..., T], *arguments: Any) -> T:
    """Work that reads the database. Raises ``Refusal``."""
    return await cast(Work, request.app.state.work).read(work, *arguments)


async def to_write(request: Request, work: Callable[..., T], *arguments: Any) -> T:
    """Work that writes to the database. Raises ``Refusal``."""
    return await cast(Work, request.app.state.work).write(work, *arguments)
