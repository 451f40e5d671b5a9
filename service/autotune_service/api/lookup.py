"""``POST /v1/lookup``: many questions, one answer each, all from one snapshot.

The busiest route: what is asked for exactly as it is published is answered with text that was
encoded when the snapshot was loaded, and nothing is parsed but the request itself.
"""

from functools import lru_cache
from typing import Any

from pydantic_core import from_json
from starlette.responses import Response
from starlette.types import Receive, Send

from autotune.errors import AutotuneError
from autotune.lookup.matching import EXACT
from autotune_service.api.questions import (
    VERSIONS,
    Surroundings,
    chip_of,
    known_identity,
    parse_question,
    toolchain_of,
)
from autotune_service.api.uploads import whole
from autotune_service.errors import Refusal
from autotune_service.middleware.metrics import REFUSED, Meter
from autotune_service.misses import Missed
from autotune_service.snapshot_cache import Held, Snapshot

MAX_BODY_BYTES = 1 << 20
MAX_QUESTIONS = 1_000
Versions = tuple[Any, Any, Any]
_NO_VERSIONS: Versions = ("", "", "")
_JSON = (b"content-type", b"application/json")


class Lookup:
    """The endpoint; what it is given belongs to the process."""

    def __init__(self, held: Held, missed: Missed, meter: Meter) -> None:
        self._held, self._missed, self._meter = held, missed, meter

    async def __call__(self, receive: Receive, send: Send) -> None:
        """Not through Starlette: FastAPI and Starlette would take longer than the answer.

        Raises ``Refusal``.
        """
        asked = _parse(await read_body(receive))
        wanted = wanted_snapshot(asked.get("snapshot"))
        snapshot = self._held.current if wanted is None else await self._held.at(wanted)
        content = await self._answer_all(asked, snapshot)
        length = (b"content-length", b"%d" % len(content))
        await send({"type": "http.response.start", "status": 200, "headers": [_JSON, length]})
        await send({"type": "http.response.body", "body": content})

    async def _answer_all(self, asked: dict[str, Any], snapshot: Snapshot) -> bytes:
        around = Surroundings(chip=asked.get("chip"), toolchain=asked.get("toolchain"))
        chip, versions = _prepared(around)
        exact, answers, known = snapshot.exact, [], 0
        for number, question in enumerate(_questions(asked)):
            found = None
            if chip is not None:
                identity = known_identity(question, chip, versions, snapshot)
                found = None if identity is None else exact.get(identity)
            known += found is not None
            answers.append(found or await self._answer(question, around, snapshot, number))
        self._meter.answered(EXACT, known)
        return b'{"snapshot":%d,"answers":[%s]}' % (snapshot.number, b",".join(answers))

    async def _answer(
        self, question: Any, around: Surroundings, snapshot: Snapshot, n: int
    ) -> bytes:
        try:
            key = parse_question(question, around, snapshot, f"questions[{n}]")
        except Refusal as refusal:
            self._meter.answered(REFUSED)
            return refusal.encoded()
        match, answer = await snapshot.answer(key)
        self._meter.answered(match)
        if match != EXACT:
            self._missed.count(key, match)
        return answer


async def read_body(receive: Receive) -> bytes:
    """Raises ``Refusal`` for one that is too large, without reading all of it."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "disconnected", "the request ended early")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MAX_BODY_BYTES:
            why = f"the body is larger than {MAX_BODY_BYTES} bytes: ask in several calls"
            raise Refusal(413, "body_too_large", why)
    return body


def wanted_snapshot(given: Any) -> int | None:
    """None for the one in force."""
    if given is None or given == "latest":
        return None
    given = whole(given)
    if type(given) is int and 0 <= given <= 10**15:
        return given
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) <= 15:
        return int(given)
    raise Refusal(422, "invalid_snapshot", "snapshot must be a number or latest", "snapshot")


def json_response(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _parse(body: bytes) -> dict[str, Any]:
    try:
        asked = from_json(body, allow_inf_nan=False)  # three times as fast as the standard library
    except ValueError as error:
        raise Refusal(400, "invalid_json", "the body is not JSON") from error
    if not isinstance(asked, dict):
        raise Refusal(422, "invalid_body", "the body must be an object with questions")
    return asked


def _questions(asked: dict[str, Any]) -> list[Any]:
    questions = asked.get("questions")
    if not isinstance(questions, list):
        raise Refusal(422, "invalid_field", "questions must be a list", "questions")
    if len(questions) > MAX_QUESTIONS:
        message = f"{len(questions)} questions in one call: at most {MAX_QUESTIONS}"
        raise Refusal(413, "too_many_questions", message, "questions")
    return questions


def _prepared(around: Surroundings) -> tuple[str | None, Versions]:
    """Chip and versions for all questions; None where each must be looked at by itself."""
    chip, versions = around.chip, around.toolchain
    if type(chip) is not str or type(versions) is not dict:
        return None, _NO_VERSIONS
    given = (versions.get("jax"), versions.get("jaxlib"), versions.get("libtpu"))
    if not all(type(one) is str for one in given):
        return None, _NO_VERSIONS
    return _checked(chip, given)


@lru_cache(maxsize=1_000)  # a fleet has few chips and toolchains
def _checked(chip: str, given: Versions) -> tuple[str | None, Versions]:
    try:
        toolchain_of(dict(zip(VERSIONS, given, strict=True)), "toolchain")
        return chip_of(chip, "chip").value, given
    except (Refusal, AutotuneError):
        return None, _NO_VERSIONS
