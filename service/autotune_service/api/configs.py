"""``GET /v1/configs/{kernel}``: one question, for people with curl."""

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from autotune.domain.key import Key
from autotune.errors import InvalidInputError
from autotune.lookup.matching import EXACT
from autotune_service.api.lookup import json_response, wanted_snapshot
from autotune_service.api.questions import MAX_NAME, chip_of, fingerprint_of, toolchain_of
from autotune_service.errors import Refusal
from autotune_service.middleware.metrics import Meter
from autotune_service.misses import Missed
from autotune_service.snapshot_cache import Held, Snapshot


class OneConfig:
    """The endpoint: the answer of ``POST /v1/lookup`` to one question, with its snapshot."""

    path = "/v1/configs/{kernel}"

    def __init__(self, held: Held, missed: Missed, meter: Meter) -> None:
        self._held, self._missed, self._meter = held, missed, meter

    async def __call__(self, request: Request) -> Response:
        request.scope["route"] = self  # for what is counted
        try:
            snapshot = await self._held.at(wanted_snapshot(request.query_params.get("snapshot")))
            key = _key(request.path_params["kernel"], request.query_params, snapshot)
        except Refusal as refusal:
            return refusal.response(request.scope)
        match, answer = await snapshot.answer(key)
        self._meter.answered(match)
        if match != EXACT:
            self._missed.count(key, match)
        return json_response(b'{"snapshot":%d,%s' % (snapshot.number, answer[1:]))


def _key(kernel: str, query: QueryParams, snapshot: Snapshot) -> Key:
    versions = {name: query.get(name) for name in ("jax", "jaxlib", "libtpu")}
    chip, toolchain = chip_of(query.get("chip"), "chip"), toolchain_of(versions, "toolchain")
    fingerprint = fingerprint_of(kernel, _text(query, "fingerprint"), snapshot, "kernel")
    spec = snapshot.index.kernels.get((kernel, fingerprint))
    if spec is None:
        message = f"nothing is known of {kernel} with the fingerprint {fingerprint}"
        raise Refusal(404, "unknown_fingerprint", message, "fingerprint")
    shape = _text(query, "shape")
    if shape is None:
        example = ",".join(f"{name}=…" for name in spec.problems.dims)
        raise Refusal(422, "missing_field", f"shape is missing: give {example}", "shape")
    try:
        problem = spec.problems.parse(shape, _text(query, "dtype"), query.getlist("option"))
    except InvalidInputError as error:
        raise Refusal(422, "invalid_problem", str(error), "shape") from error
    return Key(
        kernel=kernel, fingerprint=fingerprint, problem=problem, chip=chip, toolchain=toolchain
    )


def _text(query: QueryParams, name: str) -> str | None:
    given = query.get(name)
    if given is not None and (len(given) > MAX_NAME or not given.isprintable()):
        message = f"{name} must have at most {MAX_NAME} printable characters"
        raise Refusal(422, "invalid_field", message, name)
    return given
