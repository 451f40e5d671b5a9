"""``POST /v1/lookup``: many questions, one answer each, all from one snapshot.

The busiest route: what is asked for exactly as it is published is answered with text that was
encoded when the snapshot was loaded, and nothing is parsed but the request itself.
"""

from typing import Annotated, Any, cast

from fastapi import APIRouter, Body
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from autotune.lookup.matching import EXACT
from autotune_service.api.questions import (
    Printable,
    Question,
    Questions,
    VersionsData,
    key_of,
    known_identity,
)
from autotune_service.api.schema import LookupResponse, SnapshotName, SnapshotNumber
from autotune_service.dependencies import ERRORS, snapshots_of
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

    questions: Questions
    chip: Printable | None = Field(None, examples=["v5e"])
    toolchain: VersionsData | None = None
    snapshot: SnapshotNumber | SnapshotName | None = Field(None, examples=["latest"])


class JsonRoute(APIRoute):
    """Its endpoint takes the request and the body, which the declared model reads from its bytes.
    All else that FastAPI does for a route takes longer than a lookup."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        assert self.body_field is not None
        model: TypeAdapter[Any] = TypeAdapter(cast(Any, self.body_field.field_info.annotation))
        endpoint = self.endpoint

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            content = (await receive())["body"]  # in one piece: the middleware sees to it
            try:
                body = model.validate_json(content)
            except ValidationError as error:
                raise _invalid(error, content) from error
            response: Response = await endpoint(Request(scope), body)
            await response(scope, receive, send)

        self.app = answer


def _invalid(error: ValidationError, content: bytes) -> HttpError:
    errors = error.errors(include_url=False, include_context=False)
    return invalid(errors, None if errors[0]["type"] == "json_invalid" else from_json(content))


router = APIRouter(route_class=JsonRoute)


@router.post(LOOKUP, response_model=LookupResponse, responses=ERRORS)
async def lookup(request: Request, asked: Annotated[LookupRequest, Body()]) -> Response:
    """Many questions, one answer each, all from one snapshot. A question that cannot be understood
    fails alone."""
    snapshot = await snapshots_of(request).at(wanted_snapshot(asked.snapshot))
    answers = await _answers(request.app.state, asked, snapshot)
    content = b'{"snapshot":%d,"answers":[%s]}' % (snapshot.number, b",".join(answers))
    return Response(content, headers=SAFE_HEADERS, media_type="application/json")


async def _answers(state: Any, asked: LookupRequest, snapshot: IndexedSnapshot) -> list[bytes]:
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
    return answers


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
