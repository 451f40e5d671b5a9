"""Bodies of megabytes: read in a thread, else no other call is answered for seconds."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from autotune_service.errors import broken_json, not_valid


class LargeBodyRoute(APIRoute):
    """As FastAPI's, but that what it does to a body, which its model describes, is done before."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        assert self.body_field is not None
        described: Any = self.body_field.field_info.annotation
        model: TypeAdapter[Any] = TypeAdapter(described)

        async def read_and_answer(request: Request) -> Response:
            if _is_json(request):
                body, pool = await request.body(), request.scope["state"]["pushes"]
                read = asyncio.get_running_loop().run_in_executor(pool, _read, model, body)
                request._json = await read  # what json() gives
            return await answer(request)

        return read_and_answer


def _is_json(request: Request) -> bool:
    """Or nobody says what it is. FastAPI refuses what is something else, and reads none of it."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type in ("", "application/json") or media_type.endswith("+json")


def _read(model: TypeAdapter[Any], body: bytes) -> Any:
    """Raises ``HttpError``."""
    try:
        sent = from_json(body)
    except ValueError as error:
        raise broken_json() from error
    try:
        return model.validate_python(sent)
    except ValidationError as error:
        raise not_valid(error, sent) from error
