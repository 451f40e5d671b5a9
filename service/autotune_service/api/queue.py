"""The queue of jobs over HTTP, for workers that do not share the database."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from fastapi import APIRouter, Request

from autotune.domain.job import Ability, Job, State
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.queue import Queue
from autotune_db import SqlStore
from autotune_service.api.bodies import BodyRoute
from autotune_service.api.reading import Number, known_job
from autotune_service.api.schema import (
    BeatRequest,
    Claimed,
    ClaimRequest,
    FinishRequest,
    GiveBackRequest,
    Holds,
    LogRequest,
    Turn,
)
from autotune_service.dependencies import (
    BEARER,
    ERRORS,
    KNOWN_PARAMETERS,
    caller,
    store,
    to_write,
)
from autotune_service.errors import HttpError

router = APIRouter(
    prefix="/v1",
    tags=["workers"],
    responses=ERRORS,
    dependencies=[BEARER, KNOWN_PARAMETERS],
    route_class=BodyRoute,
)


@router.post("/claims")
async def claim(request: Request, asked: ClaimRequest) -> Claimed:
    """The oldest job that this worker can run and that nobody has. It stays the worker's while
    there are heartbeats; what it finds comes by ``POST /v1/results``."""
    fingerprints = {spec.name: spec.fingerprint for spec in asked.kernels}
    able = Ability(kernels=fingerprints, toolchain=asked.toolchain)
    name = f"{caller(request).name}/{asked.worker}"
    job = await to_write(request, _claim, store(request), asked.kernels, name, able, asked.lease_s)
    return Claimed(job=job)


@router.post("/jobs/{number}/heartbeat")
async def heartbeat(request: Request, number: Number, beat: BeatRequest) -> Holds:
    """A sign of life, several in each lease, with the progress that all can read."""
    return await _in_turn(
        request, number, beat, lambda jobs, job: jobs.heartbeat(job, beat.progress)
    )


@router.post("/jobs/{number}/log")
async def write_log(request: Request, number: Number, log: LogRequest) -> Holds:
    """What the worker says, which all can read, in the place of what it said before."""
    return await _in_turn(request, number, log, lambda jobs, job: jobs.write_log(job, log.text))


@router.post("/jobs/{number}/finish")
async def finish(request: Request, number: Number, end: FinishRequest) -> Holds:
    """What was found has come by ``POST /v1/results`` before."""
    state = State(end.state)
    return await _in_turn(
        request, number, end, lambda jobs, job: jobs.finish(job, state, end.message)
    )


@router.post("/jobs/{number}/give-back")
async def give_back(request: Request, number: Number, back: GiveBackRequest) -> Holds:
    """Leave a job to other workers, or end it where it was cancelled."""
    return await _in_turn(
        request,
        number,
        back,
        lambda jobs, job: jobs.give_back(job, back.message, counts=back.counts),
    )


def _claim(
    into: SqlStore, kernels: Sequence[KernelSpec], worker: str, able: Ability, lease_s: float
) -> Job | None:
    into.offer_kernels(kernels)
    return into.jobs.claim(worker, able, lease_s)


async def _in_turn(
    request: Request, number: int, turn: Turn, work: Callable[[Queue, Job], bool]
) -> Holds:
    """Work of the worker whose turn it is: one with another token has none.

    Raises ``HttpError``.
    """
    jobs = store(request).jobs
    job = await known_job(request, number)
    if turn.worker.rpartition("/")[0] != caller(request).name:
        message = f"{turn.worker} is no worker with the token {caller(request).name}"
        raise HttpError(403, "another_worker", message, "worker")
    mine = replace(job, worker=turn.worker, attempt=turn.attempt)
    return Holds(holds=await to_write(request, partial(work, jobs, mine)))
