"""``POST /v1/lookup``: many questions, one answer each, all from one snapshot.

The busiest route: what is asked for exactly as it is published is answered with text that was
encoded when the snapshot was loaded, and nothing is parsed but the request itself. Where the same
body was answered so before, not even that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any, NotRequired, cast

from fastapi import APIRouter, Body
from fastapi.routing import APIRoute
from pydantic import FailFast, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import from_json
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from typing_extensions import TypedDict

from autotune.domain.key import Key
from autotune.lookups.matching import EXACT, KINDS, MatchKind, beside_default
from autotune_service.api.questions import (
    MAX_QUESTIONS,
    Printable,
    Question,
    Unread,
    VersionsData,
    key_of,
    known_identity,
)
from autotune_service.api.schema import LookupResponse, SnapshotName, SnapshotNumber
from autotune_service.dependencies import ERRORS, refuse_parameters_but
from autotune_service.errors import HttpError, broken_json, not_valid
from autotune_service.middleware.access import LOOKUP
from autotune_service.middleware.limits import count_wrong
from autotune_service.middleware.metrics import OTHER, REFUSED
from autotune_service.snapshot_cache import IndexedSnapshot, Reply, SnapshotCache

_AT_ONCE = 10  # questions, a millisecond or two each at worst: others go between
_KERNEL: dict[str, Any] = {
    "kernel": "matmul",
    "problem": {"dims": {"m": 1024, "k": 1024, "n": 1024}},
}
_VERSIONS: dict[str, Any] = {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.42.1"}


@with_config(
    extra="forbid",
    json_schema_extra={
        "examples": [{"chip": "v5e", "toolchain": _VERSIONS, "questions": [_KERNEL]}]
    },
)
class LookupRequest(TypedDict):
    questions: Annotated[list[Question], Field(max_length=MAX_QUESTIONS), FailFast()]
    chip: NotRequired[Annotated[Printable | None, Field(examples=["v5e"])]]
    toolchain: NotRequired[VersionsData | None]
    accept: NotRequired[
        Annotated[list[MatchKind], Field(max_length=len(KINDS), fail_fast=True)] | None
    ]
    snapshot: NotRequired[
        Annotated[SnapshotNumber | SnapshotName | None, Field(examples=["latest"])]
    ]


_FIELDS = "leave out all but " + ", ".join(LookupRequest.__annotations__)
_request: TypeAdapter[LookupRequest] = TypeAdapter(LookupRequest)


class LookupApp:
    """The route as an ASGI application, around an endpoint that takes the request and what was
    asked, and gives the reply: all else that FastAPI does for a route takes longer than a lookup.
    """

    def __init__(self, endpoint: Callable[[Request, LookupRequest], Awaitable[Reply]]) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["query_string"]:
            refuse_parameters_but(Request(scope), ())
        body: bytes = (await receive())["body"]  # in one piece: the middleware sees to it
        state = scope["state"]
        snapshots: SnapshotCache = state["snapshots"]
        reply = snapshots.replies.get(body)
        if reply is None:
            asked = _read(scope, body)
            reply = await self._endpoint(Request(scope), asked)
            if reply.encoded and reply.encoded == len(asked["questions"]):
                snapshots.keep_reply(body, reply)
        state["meter"].answered(EXACT, reply.encoded)
        content = reply.content
        headers = [*_HEADERS, (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})


class LookupRoute(APIRoute):
    """For FastAPI, which describes it by the model that reads the body."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.app = LookupApp(self.endpoint)


def _read(scope: Scope, content: bytes) -> LookupRequest:
    """A bad question fails alone: where there is one, each is read when it is answered."""
    try:
        return _request.validate_json(content)
    except ValidationError as error:
        wrong = error
    count_wrong(scope, wrong.error_count())
    try:
        sent = from_json(content)
    except ValueError as error:
        raise broken_json() from error
    if isinstance(sent, dict) and len(sent) > len(LookupRequest.__annotations__):
        raise HttpError(422, "invalid_field", f"it has {len(sent)} fields: {_FIELDS}")
    questions = sent.get("questions") if isinstance(sent, dict) else None
    if not isinstance(questions, list):
        raise not_valid(wrong, sent)
    if len(questions) > MAX_QUESTIONS:
        message = f"questions: {len(questions)} are too many, ask at most {MAX_QUESTIONS} at once"
        raise HttpError(413, "too_many_questions", message, "questions")
    try:
        asked = _request.validate_python({**sent, "questions": []})
    except ValidationError as error:
        raise not_valid(error, sent) from error
    asked["questions"] = cast(Any, list(map(Unread, questions)))
    return asked


# No policy as other answers have: of JSON that it must not take for anything else no browser makes
# a page that could load or run something.
_HEADERS = [(b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff")]
router = APIRouter(route_class=LookupRoute, tags=["lookup"])


@router.post(LOOKUP, operation_id="lookup", response_model=LookupResponse, responses=ERRORS)
async def lookup(request: Request, asked: Annotated[LookupRequest, Body()]) -> Reply:
    """Many questions, one answer each, all from one snapshot. A question that cannot be understood
    fails alone. ``accept``: which kinds of answers are taken beside *default*, by default all."""
    state = request.scope["state"]
    snapshot: IndexedSnapshot = await state["snapshots"].at(wanted_snapshot(asked.get("snapshot")))
    chip, toolchain = asked.get("chip"), asked.get("toolchain")
    accept = beside_default(KINDS if (given := asked.get("accept")) is None else given)
    answers: list[bytes | None] = []
    for question in cast(list[Question | Unread], asked["questions"]):
        found = None
        if EXACT in accept and not isinstance(question, Unread):
            own = known_identity(question, chip, toolchain, snapshot)
            found = None if own is None else snapshot.exact.get(own)
        answers.append(found)
    missing = answers.count(None)
    if missing:
        await _look_for_others(state, asked, accept, answers, snapshot)
    content = b'{"snapshot":%d,"answers":[%s]}' % (snapshot.number, b",".join(cast(Any, answers)))
    return Reply(content, snapshot.number, len(answers) - missing)


async def _look_for_others(
    state: dict[str, Any],
    asked: LookupRequest,
    accept: frozenset[str],
    answers: list[bytes | None],
    snapshot: IndexedSnapshot,
) -> None:
    """Fills in what is not known exactly: in a thread, and some at a time, so that neither exact
    answers nor another call waits for long."""
    places = [place for place, answer in enumerate(answers) if answer is None]
    for start in range(0, len(places), _AT_ONCE):
        some = places[start : start + _AT_ONCE]
        work = partial(_look_for, asked, accept, some, snapshot)
        found = await asyncio.get_running_loop().run_in_executor(state["matching"], work)
        for place, (kind, key, answer) in zip(some, found, strict=True):
            answers[place] = answer
            state["meter"].answered(kind, kernel=key.kernel if key else OTHER)
            if key is not None and snapshot.index.exact(key) is None:
                state["misses"].count(key, kind)


def _look_for(
    asked: LookupRequest,
    accept: frozenset[str],
    places: Sequence[int],
    snapshot: IndexedSnapshot,
) -> list[tuple[str, Key | None, bytes]]:
    """How it fits, the key, and the answer."""
    found: list[tuple[str, Key | None, bytes]] = []
    for place in places:
        asked_for: Question | Unread = asked["questions"][place]
        try:
            question = asked_for.read() if isinstance(asked_for, Unread) else asked_for
            key = key_of(question, asked.get("chip"), asked.get("toolchain"), snapshot)
        except HttpError as error:
            found.append((REFUSED, None, error.under(f"questions[{place}]").encoded()))
        else:
            kind, answer = snapshot.answer(key, accept)
            found.append((kind, key, answer))
    return found


routes = [Route(LOOKUP, LookupApp(lookup), methods=["POST"])]
"""Where no part of FastAPI is passed."""


def wanted_snapshot(given: int | str | None) -> int | None:
    """None for the one in force."""
    return None if given is None or given == "latest" else int(given)
