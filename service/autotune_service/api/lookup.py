"""``POST /v1/lookup``: many questions, one answer each, all from one snapshot.

The busiest route: what is asked for exactly as it is published is answered with text that was
encoded when the snapshot was loaded, and of the request nothing is checked but types. Where the
same body was answered so before, not even that. All else is read, checked and looked for in a
thread, question by question.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, MutableMapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Annotated, Any, NotRequired, cast

import msgspec
from fastapi import APIRouter, Body
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs
from pydantic import Field, TypeAdapter, with_config
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import TypedDict

from autotune.answering.matching import EXACT, KINDS, MatchKind, beside_default
from autotune.domain.codec import from_data
from autotune.domain.key import Key
from autotune.domain.problem import Config
from autotune_service.api import questions as forms
from autotune_service.api.schema import LookupResponse, SnapshotName, SnapshotNumber
from autotune_service.dependencies import ERRORS, refuse_parameters_but, snapshots_of
from autotune_service.errors import HttpError, unreadable
from autotune_service.middleware.access import LOOKUP
from autotune_service.middleware.limits import caller_of, count_wrong
from autotune_service.middleware.metrics import OTHER, REFUSED
from autotune_service.snapshot_cache import IndexedSnapshot, Reply, SnapshotCache

_log = logging.getLogger("autotune.service")

_MOST_VALUES = 100_000  # in a call of which something is wrong: so many are split in milliseconds
MOST_REFUSED = 16  # configs in a call: who asks gives up before
_LARGE_BYTES = 16 << 10  # of a call: it takes a millisecond or more
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
    questions: Annotated[list[forms.Question], Field(max_length=forms.MAX_QUESTIONS)]
    chip: NotRequired[Annotated[forms.Printable | None, Field(examples=["v5e"])]]
    toolchain: NotRequired[forms.VersionsData | None]
    accept: NotRequired[
        Annotated[list[MatchKind], Field(max_length=len(KINDS), fail_fast=True)] | None
    ]
    accept_claimed: NotRequired[bool | None]
    without: NotRequired[Annotated[list[dict[str, Any]], Field(max_length=MOST_REFUSED)] | None]
    snapshot: NotRequired[
        Annotated[SnapshotNumber | SnapshotName | None, Field(examples=["latest"])]
    ]


class LookupStruct(Struct, forbid_unknown_fields=True, gc=False):
    questions: Annotated[list[forms.QuestionStruct], Meta(max_length=forms.MAX_QUESTIONS)]
    chip: forms.Name | None = None
    toolchain: forms.VersionsStruct | None = None
    accept: Annotated[list[MatchKind], Meta(max_length=len(KINDS))] | None = None
    accept_claimed: bool | None = None
    without: Raw | UnsetType = UNSET
    snapshot: int | Annotated[str, Meta(pattern=r"^(latest|[0-9]{1,15})\Z")] | None = None


_OTHERS = [(name, Raw | UnsetType, UNSET) for name in LookupStruct.__struct_fields__[1:]]
LookupParts = msgspec.defstruct(
    "LookupParts", [("questions", Raw), *_OTHERS], forbid_unknown_fields=True
)
"""The fields of a ``LookupStruct``, as they were sent."""


_request: TypeAdapter[LookupRequest] = TypeAdapter(LookupRequest)
_types = msgspec.json.Decoder(LookupStruct)
_parts = msgspec.json.Decoder(LookupParts)
_questions = msgspec.json.Decoder(list[Raw])


class LookupMiddleware:
    """Answers lookups before a route is looked for: what FastAPI does for a call takes longer.

    The route is for what is not published, and describes both.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and scope["path"] == LOOKUP and scope["method"] == "POST":
            return _answer(scope, receive, send)
        return self._app(scope, receive, send)


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    scope["route"] = router.routes[0]
    if scope["query_string"]:
        refuse_parameters_but(Request(scope), ())
    body: bytes = (await receive())["body"]  # in one piece: the middleware sees to it
    state = scope["state"]
    reply = state["snapshots"].replies.get(body) or state["claimed"].replies.get(body)
    if reply is None:
        reply = await _reply_to(scope, body)
    state["meter"].answered(EXACT, reply.encoded)
    content = reply.content
    headers = [*_HEADERS, (b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _reply_to(scope: Scope, body: bytes) -> Reply:
    if len(body) <= _LARGE_BYTES:
        known = await _known(scope, body)
    else:
        async with _turn_of(scope):
            known = await _known(scope, body)
    return known if isinstance(known, Reply) else await lookup(Request(scope), known)


def _turn_of(scope: Scope) -> asyncio.Lock:
    """Of a caller's calls one is at it, and others go between, on however many connections."""
    turns: MutableMapping[int | str, asyncio.Lock] = scope["state"]["turns"]
    return turns.setdefault(caller_of(scope), asyncio.Lock())


async def _known(scope: Scope, body: bytes) -> Reply | LookupRequest:
    """What was asked, with the answers that are known, where not all are. Raises ``HttpError``."""
    try:
        call = _types.decode(body)
    except (ValueError, RecursionError):
        count_wrong(scope, len(body))
        return _read(body, [])
    snapshots = await snapshots_of(scope, claimed=call.accept_claimed)
    snapshot, answers = _published(call, snapshots)
    if not answers or None in answers:
        asked = _read(body, answers)
        if answers:
            asked["snapshot"] = snapshot.number
        return asked
    reply = _reply(snapshot, answers, len(answers))
    snapshots.keep_reply(body, reply)
    return reply


def _published(
    call: LookupStruct, snapshots: SnapshotCache
) -> tuple[IndexedSnapshot, list[bytes | None]]:
    """No answers where they cannot be exact, or not at once."""
    snapshot = snapshots.in_memory(wanted_snapshot(call.snapshot))
    is_exact = (call.accept is None or EXACT in call.accept) and call.without is UNSET
    if snapshot is None or not is_exact:
        return snapshots.current, []
    exact, chip, toolchain = snapshot.exact, call.chip, call.toolchain
    versions = "".join(structs.astuple(toolchain)) if toolchain else ""
    if not f"{chip}{versions}".isprintable():  # it may be that no question uses them
        return snapshot, []
    known = forms.known_identity
    keys = (known(question, chip, toolchain, snapshot) for question in call.questions)
    return snapshot, [key and exact.get(key) for key in keys]


def _read(body: bytes, answers: Sequence[bytes | None]) -> LookupRequest:
    """What was asked, with the answers in the place of their questions. A bad question fails alone:
    each is read when it is answered. Raises ``HttpError``."""
    try:
        parts: Any = _parts.decode(body)
    except (ValueError, RecursionError) as error:
        forms.checked(_request, body, _parts)
        raise unreadable(error) from error
    questions = _split(bytes(parts.questions))
    parts.questions = Raw(b"[]")
    asked = forms.checked(_request, msgspec.json.encode(parts), _types)
    unread = map(forms.Unread, questions)
    pairs = zip_longest(answers, unread)
    asked["questions"] = cast(Any, [known or question for known, question in pairs])
    return asked


def _split(questions: bytes) -> list[Raw]:
    is_long = questions.count(b",") >= _MOST_VALUES
    try:
        parts = [] if is_long else _questions.decode(questions)
    except ValueError as error:
        raise HttpError(422, "invalid_field", "questions: must be a list", "questions") from error
    if is_long or len(parts) > forms.MAX_QUESTIONS:
        message = (
            f"questions: ask at most {forms.MAX_QUESTIONS} at once, of {_MOST_VALUES} values in all"
        )
        raise HttpError(413, "too_many_questions", message, "questions")
    return parts


# No policy as other answers have: of JSON that it must not take for anything else no browser makes
# a page that could load or run something.
_HEADERS = [(b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff")]
router = APIRouter(tags=["lookup"])


@router.post(LOOKUP, operation_id="lookup", response_model=LookupResponse, responses=ERRORS)
async def lookup(request: Request, asked: Annotated[LookupRequest, Body()]) -> Reply:
    """Many questions, one answer each, all from one snapshot. A question that cannot be understood
    fails alone. ``accept``: which kinds of answers are taken beside *default*, by default all.
    ``accept_claimed``: also what nobody but its pusher has verified, where nothing is proven.
    ``without``: configs that cannot be taken, which counts as a miss."""
    state = request.scope["state"]
    snapshots = await snapshots_of(request.scope, claimed=asked.get("accept_claimed"))
    snapshot = await snapshots.at(wanted_snapshot(asked.get("snapshot")))
    answers = cast(list[bytes | forms.Unread], asked["questions"])
    unread = [place for place, answer in enumerate(answers) if isinstance(answer, forms.Unread)]
    known = len(answers) - len(unread)
    turn = _turn_of(request.scope)
    for start in range(0, len(unread), _AT_ONCE):
        async with turn:
            await _look_for_some(state, asked, unread[start : start + _AT_ONCE], snapshot)
    return _reply(snapshot, answers, known)


def _reply(snapshot: IndexedSnapshot, answers: Sequence[Any], encoded: int) -> Reply:
    named = snapshot.number, snapshot.id.encode(), b",".join(answers)
    content = b'{"snapshot":%d,"snapshot_id":"%s","answers":[%s]}' % named
    return Reply(content, snapshot.id, encoded)


async def _look_for_some(
    state: dict[str, Any], asked: LookupRequest, places: Sequence[int], snapshot: IndexedSnapshot
) -> None:
    """Puts answers in the place of these questions: in a thread, and of few at a time, so that
    neither what is published nor another call waits for long."""
    answers: list[Any] = asked["questions"]
    work = partial(_look_for, asked, places, snapshot)
    matched = await asyncio.get_running_loop().run_in_executor(state["matching"], work)
    for place, (kind, key, answer) in zip(places, matched, strict=True):
        answers[place] = answer
        claim = key is not None and snapshot.index.has_claim(key)
        state["meter"].answered(kind, kernel=key.kernel if key else OTHER, claim=claim)
        if key is not None and (asked.get("without") or snapshot.index.exact(key) is None):
            state["misses"].count(key, kind)


def _look_for(
    asked: LookupRequest, places: Sequence[int], snapshot: IndexedSnapshot
) -> list[tuple[str, Key | None, bytes]]:
    """How it fits, the key, and the answer."""
    accept = beside_default(KINDS if (given := asked.get("accept")) is None else given)
    if without := _configs(asked.get("without") or ()):
        _log.info("a client cannot take what is published: %s", "; ".join(map(str, without)))
    answers: list[tuple[str, Key | None, bytes]] = []
    for place in places:
        try:
            question = cast(forms.Unread, asked["questions"][place]).read()
            key = forms.key_of(question, asked.get("chip"), asked.get("toolchain"), snapshot)
        except HttpError as error:
            answers.append((REFUSED, None, error.under(f"questions[{place}]").encoded()))
        else:
            kind, answer = snapshot.answer(key, accept, without)
            answers.append((kind, key, answer))
    return answers


def _configs(given: Iterable[dict[str, Any]]) -> frozenset[Config]:
    try:
        return frozenset(from_data(Config, config) for config in given)
    except (ValueError, TypeError) as error:
        raise HttpError(422, "invalid_config", f"without: {error}", "without") from error


def wanted_snapshot(given: int | str | None) -> int | None:
    """None for the one in force."""
    return None if given is None or given == "latest" else int(given)
