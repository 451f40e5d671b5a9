"""Bodies are read here, not by FastAPI: it lists every mistake, a kilobyte each, and holds up all
other calls while it does."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from autotune_service.dependencies import refuse_unknown_parameters
from autotune_service.errors import broken_json, not_valid

_LARGE_BYTES = 64 << 10  # read in a thread, else no other call is answered meanwhile


class BodyRoute(APIRoute):
    """As FastAPI's, but that what it does to a body, which its model describes, is done before."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        if self.body_field is None:
            return answer
        described: Any = self.body_field.field_info.annotation
        model: TypeAdapter[Any] = TypeAdapter(described)

        async def read_and_answer(request: Request) -> Response:
            refuse_unknown_parameters(request)  # no body is read for a call that is refused
            if _is_json(request):
                body = await request.body()
                if len(body) <= _LARGE_BYTES:
                    request._json = _read(model, body)  # what json() gives
                else:
                    pool, loop = request.scope["state"]["pushes"], asyncio.get_running_loop()
                    request._json = await loop.run_in_executor(pool, _read, model, body)
            return await answer(request)

        return read_and_answer


def _is_json(request: Request) -> bool:
    """Or nobody says what it is. FastAPI refuses what is something else, and reads none of it."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type in ("", "application/json") or media_type.endswith("+json")


def _read(model: TypeAdapter[Any], body: bytes) -> Any:
    try:
        sent = from_json(body)
    except ValueError as error:
        raise broken_json() from error
    try:
        return model.validate_python(sent)
    except ValidationError as error:
        raise not_valid(error, body) from error
