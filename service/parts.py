"""What the routes share: the parts of the application, and how a store's work is awaited."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, cast

from fastapi import Query, Request

from autotune.errors import StoreError
from autotune.tokens import Token
from db import SqlStore
from service.held import Held
from service.refusal import unavailable
from service.schema import Error

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=1_000)]
Responses = dict[int | str, dict[str, Any]]
REFUSED: Responses = {
    code: {"model": Error} for code in (400, 401, 403, 404, 408, 413, 422, 429, 503)
}


def held(request: Request) -> Held:
    return cast(Held, request.app.state.held)


def store(request: Request) -> SqlStore:
    return cast(SqlStore, request.app.state.store)


def caller(request: Request) -> Token:
    """Who writes: known since the call passed the front."""
    return cast(Token, request.state.token)


async def ask(work: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """The work of the database, in a thread. Raises ``Refusal``."""
    try:
        return await asyncio.to_thread(work, *arguments, **named)
    except StoreError as error:
        raise unavailable(error) from error
