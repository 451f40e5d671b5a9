"""``POST /v1/lookup``: many questions, one answer each, all from one snapshot.

The busiest route: what is asked for exactly as it is published is answered with text that was
encoded when the snapshot was loaded, and nothing is parsed but the request itself.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Body
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from autotune.lookup.matching import EXACT
from autotune_service.api.questions import (
    MAX_QUESTIONS,
    Printable,
    Question,
    VersionsData,
    key_of,
    known_identity,
    question_or_error,
)
from autotune_service.api.schema import LookupResponse, SnapshotName, SnapshotNumber
from autotune_service.dependencies import ERRORS
from autotune_service.errors import SAFE_HEADERS, HttpError, invalid
from autotune_service.middleware.access import LOOKUP
from autotune_service.middleware.metrics import REFUSED
from autotune_service.snapshot_cache import IndexedSnapshot

_KERNEL: dict[str, Any] = {
    "kernel": "matmul",
    "problem": {"dims": {"m": 1024, "k": 1024, "n": 1024}},
}
_VERSIONS: dict[str, Any] = {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.42.1"}


class LookupRequest(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"chip": "v5e", "toolchain": _VERSIONS, "questions": [_KERNEL]}]
        },
    )

    questions: Annotated[list[Question], Field(max_length=MAX_QUESTIONS)]
    chip: Printable | None = Field(None, examples=["v5e"])
    toolchain: VersionsData | None = None
    snapshot: SnapshotNumber | SnapshotName | None = Field(None, examples=["latest"])


class LookupRoute(APIRoute):
    """Its endpoint takes the request and the body, which the declared model reads from its bytes,
    and gives the bytes of the answer. All else that FastAPI does for a route takes longer than a
    lookup."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        endpoint = self.endpoint

        async def call(scope: Scope, receive: Receive, send: Send) -> None:
            asked = _read((await receive())["body"])  # in one piece: the middleware sees to it
            answer: bytes = await endpoint(Request(scope), asked)
            headers = [*_HEADERS, (b"content-length", b"%d" % len(answer))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": answer})

        self.app = call


def _read(content: bytes) -> LookupRequest:
    """A bad question fails alone: one by one they are read only where there is one."""
    try:
        return LookupRequest.model_validate_json(content)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False)
        if any(len(one["loc"]) < 2 or one["loc"][0] != "questions" for one in errors):
            sent = None if errors[0]["type"] == "json_invalid" else from_json(content)
            raise invalid(errors, sent) from error
    sent = from_json(content)
    asked = LookupRequest.model_validate({**sent, "questions": []})
    questions = list(map(question_or_error, sent["questions"]))
    return asked.model_copy(update={"questions": questions})


_HEADERS = [
    (b"content-type", b"application/json"),
    *((name.lower().encode(), value.encode()) for name, value in SAFE_HEADERS.items()),
]
router = APIRouter(route_class=LookupRoute)


@router.post(LOOKUP, response_model=LookupResponse, responses=ERRORS)
async def lookup(request: Request, asked: Annotated[LookupRequest, Body()]) -> bytes:
    """Many questions, one answer each, all from one snapshot. A question that cannot be understood
    fails alone."""
    state = request.app.state
    snapshot: IndexedSnapshot = await state.snapshots.at(wanted_snapshot(asked.snapshot))
    chip, toolchain, exact = asked.chip, asked.toolchain, snapshot.exact
    answers, known = [], 0
    for number, question in enumerate(asked.questions):
        found = None
        if not isinstance(question, HttpError):
            own = known_identity(question, chip, toolchain, snapshot)
            found = None if own is None else exact.get(own)
        known += found is not None
        answers.append(found or await _look_for(state, asked, question, snapshot, number))
    state.meter.answered(EXACT, known)
    return b'{"snapshot":%d,"answers":[%s]}' % (snapshot.number, b",".join(answers))


async def _look_for(
    state: Any,
    asked: LookupRequest,
    question: Question | HttpError,
    snapshot: IndexedSnapshot,
    number: int,
) -> bytes:
    try:
        if isinstance(question, HttpError):
            raise question
        key = key_of(question, asked.chip, asked.toolchain, snapshot)
    except HttpError as error:
        state.meter.answered(REFUSED)
        return error.under(f"questions[{number}]").encoded()
    match, answer = await snapshot.answer(key)
    state.meter.answered(match)
    if match != EXACT:
        state.misses.count(key, match)
    return answer


def wanted_snapshot(given: int | str | None) -> int | None:
    """None for the one in force."""
    return None if given is None or given == "latest" else int(given)


def json_response(content: bytes) -> Response:
    return Response(content, media_type="application/json")
