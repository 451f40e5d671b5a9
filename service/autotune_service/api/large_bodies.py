"""Bodies of megabytes: read in a thread, else no other call is answered for seconds."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from autotune_service.errors import broken_json, invalid


class LargeBodyRoute(APIRoute):
    """As FastAPI's, but that what it does to a body, which its model describes, is done before."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        assert self.body_field is not None
        described: Any = self.body_field.field_info.annotation
        model: TypeAdapter[Any] = TypeAdapter(described)

        async def read_and_answer(request: Request) -> Response:
            body = await request.body()
            request._json = await asyncio.to_thread(_read, model, body)  # what json() gives
            return await answer(request)

        return read_and_answer


def _read(model: TypeAdapter[Any], body: bytes) -> Any:
    """Raises ``HttpError``."""
    try:
        sent = from_json(body)
    except ValueError as error:
        raise broken_json() from error
    try:
        return model.validate_python(sent)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_context=False), sent) from error
