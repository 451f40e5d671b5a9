"""``GET /v1/configs/{kernel}``: one question, for people with curl; and the times of one config."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from autotune.answering.matching import EXACT
from autotune.domain.arguments import ProblemWords
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Key
from autotune.domain.record import timed_configs
from autotune_service import dependencies
from autotune_service.api.lookup import wanted_snapshot
from autotune_service.api.questions import Flags, Printable, chip_of, fingerprint_of, toolchain_of
from autotune_service.api.schema import ConfigResponse, SnapshotName, TimesResponse
from autotune_service.dependencies import IfNoneMatch, tagged
from autotune_service.errors import HttpError
from autotune_service.snapshot_cache import IndexedSnapshot


class ConfigQuery(BaseModel):
    """``option``: ``name=value`` of the problem, as often as there are options; ``options``: of the
    TPU compiler."""

    chip: Printable = Field(examples=["v5e"])
    jax: Printable = Field(examples=["0.10.2"])
    jaxlib: Printable = Field(examples=["0.10.2"])
    libtpu: Printable = Field(examples=["0.0.42.1"])
    shape: Printable = Field(examples=["1024x1024x1024", "m=1024,k=1024,n=1024"])
    dtype: Printable | None = Field(None, examples=["bfloat16"])
    option: list[Printable] = Field([], max_length=64, examples=[["causal=true"]])
    options: Flags = ""
    fingerprint: Printable | None = None
    accept_claimed: bool = False
    snapshot: SnapshotName | None = None


class TimesQuery(ConfigQuery):
    """``axis``: ``name=value`` of a config, as often as there are axes."""

    axis: list[Printable] = Field(max_length=64, examples=[["block_m=128"]])


_VERSIONS = {"jax", "jaxlib", "libtpu", "options"}


def _known_once(request: Request) -> None:
    is_times = request.url.path.endswith("/times")
    known = TimesQuery if is_times else ConfigQuery
    dependencies.refuse_parameters_but(request, known.model_fields, often=("option", "axis"))


router = APIRouter(tags=["lookup"], dependencies=[Depends(_known_once)])


@router.get(
    "/v1/configs/{kernel}",
    response_model=ConfigResponse,
    responses={304: dependencies.NOT_MODIFIED, **dependencies.ERRORS},
)
async def config(
    request: Request,
    kernel: Annotated[Printable, Path()],
    asked: Annotated[ConfigQuery, Query()],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """One question, with the answer of ``POST /v1/lookup`` and its snapshot."""
    snapshots = await dependencies.snapshots_of(request.scope, claimed=asked.accept_claimed)
    snapshot = await snapshots.at(wanted_snapshot(asked.snapshot))
    key = _key(kernel, asked, snapshot)
    in_thread = asyncio.get_running_loop().run_in_executor
    match, answer = await in_thread(request.state.matching, snapshot.answer, key)
    request.state.meter.answered(match, kernel=kernel)
    if match != EXACT:
        request.state.misses.count(key, match)
    content = b'{"snapshot":%d,%s' % (snapshot.number, answer[1:])
    return tagged(if_none_match, content, "application/json", {"Cache-Control": "no-cache"})


@router.get("/v1/configs/{kernel}/times", responses=dependencies.ERRORS)
async def times(
    request: Request, kernel: Annotated[Printable, Path()], asked: Annotated[TimesQuery, Query()]
) -> TimesResponse:
    """What a config took by estimate where it was tried for exactly this: a model whose own default
    is another one than a record was compared with asks for that."""
    snapshots = await dependencies.snapshots_of(request.scope, claimed=asked.accept_claimed)
    key = _key(kernel, asked, await snapshots.at(wanted_snapshot(asked.snapshot)))
    trials = await dependencies.ask(request, dependencies.store(request).trials, key)
    axes = dict(pair.partition("=")[::2] for pair in asked.axis)
    tried = [t for t in timed_configs(trials) if {n: str(v) for n, v in t.axes} == axes]
    return TimesResponse(times_us={t.model: t.time_us for t in reversed(tried)})


def _key(kernel: str, asked: ConfigQuery, snapshot: IndexedSnapshot) -> Key:
    chip = chip_of(asked.chip)
    fingerprint = fingerprint_of(kernel, asked.fingerprint, snapshot)
    spec = snapshot.index.kernels.get((kernel, fingerprint))
    if spec is None:
        message = f"nothing is known of {kernel} with the fingerprint {fingerprint}"
        raise HttpError(404, "unknown_fingerprint", message, "fingerprint")
    try:
        words = ProblemWords(shape=asked.shape, dtype=asked.dtype or "", options=(*asked.option,))
        problem = words.of_searched(spec)
    except InvalidInputError as error:
        raise HttpError(422, "invalid_problem", str(error), "shape") from error
    return Key(
        kernel=kernel,
        fingerprint=fingerprint,
        problem=problem,
        chip=chip,
        toolchain=toolchain_of(**asked.model_dump(include=_VERSIONS)),
    )
