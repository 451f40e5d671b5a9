"""What is not answered, in one envelope: ``{"error": {"code", "message", "field"}}``."""

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

_MOST_CHARACTERS = 500  # of a message: it may repeat what was asked


class Refusal(Exception):  # noqa: N818  (most are no error of the program)
    """``code`` is for programs and stays, ``message`` is one sentence, ``field`` says where."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.field = status, code, field

    def data(self) -> dict[str, Any]:
        message = str(self)[:_MOST_CHARACTERS]
        return {"error": {"code": self.code, "message": message, "field": self.field}}

    def encoded(self) -> bytes:
        return json.dumps(self.data()).encode()

    def response(self) -> Response:
        headers = {"Retry-After": "5"} if self.status == 503 else None
        return Response(self.encoded(), self.status, headers, "application/json")


def unavailable() -> Refusal:
    """The database is gone. Its own message may name hosts and files: it is for the log."""
    return Refusal(503, "database_unavailable", "the database cannot be read: try again later")


async def answer_refusal(_: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, Refusal)
    return refusal.response()
