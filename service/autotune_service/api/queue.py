"""The queue of jobs over HTTP, for workers that do not share the database."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request

from autotune.domain.job import Ability, Job, State
from autotune_db import SqlStore
from autotune_db.jobs import SqlJobs
from autotune_db.tokens import digest_of
from autotune_service import dependencies
from autotune_service.api import schema
from autotune_service.api.bodies import BodyRoute
from autotune_service.api.reading import Number, known_job
from autotune_service.errors import HttpError


def remember_claim(
    request: Request, autotune_claim: Annotated[str, Header(max_length=200)] = ""
) -> None:
    """``Autotune-Claim``: a secret of the worker, new for each job, with which it asks for the job
    and reports of it. Where it sends none, its token is enough."""
    request.state.claim = digest_of(autotune_claim) if autotune_claim else ""


CLAIM = Depends(remember_claim)

router = APIRouter(
    prefix="/v1",
    tags=["workers"],
    responses=dependencies.ERRORS,
    dependencies=[dependencies.BEARER, dependencies.KNOWN_PARAMETERS, CLAIM],
    route_class=BodyRoute,
)


@router.post("/claims")
async def claim(request: Request, asked: schema.ClaimRequest) -> schema.Claimed:
    """The oldest job that this worker can run and that nobody has. It stays the worker's while
    there are heartbeats; what it finds comes by ``POST /v1/results``."""
    fingerprints = {spec.name: spec.fingerprint for spec in asked.kernels}
    able = Ability(kernels=fingerprints, toolchain=asked.toolchain)
    name = f"{dependencies.caller(request).name}/{asked.worker}"

    def work(into: SqlStore) -> Job | None:
        into.offer_kernels(asked.kernels)
        return into.jobs.claim(name, able, asked.lease_s, request.state.claim)

    return schema.Claimed(
        job=await dependencies.to_write(request, work, dependencies.store(request))
    )


@router.post("/jobs/{number}/heartbeat")
async def heartbeat(request: Request, number: Number, beat: schema.BeatRequest) -> schema.Holds:
    """A sign of life, several in each lease, with the progress that all can read."""
    return await _in_turn(
        request, number, beat, lambda jobs, job: jobs.heartbeat(job, beat.progress)
    )


@router.post("/jobs/{number}/log")
async def write_log(request: Request, number: Number, log: schema.LogRequest) -> schema.Holds:
    """What the worker says, which all can read, instead of what it said before."""
    return await _in_turn(request, number, log, lambda jobs, job: jobs.write_log(job, log.text))


@router.post("/jobs/{number}/finish")
async def finish(request: Request, number: Number, end: schema.FinishRequest) -> schema.Holds:
    """It is done once a record has come by ``POST /v1/results``, and fails for a reason."""

    def work(jobs: SqlJobs, job: Job) -> bool:
        state = State(end.state)
        if state is State.DONE and not jobs.is_answered(job.request):
            message = f"job {number} has no record: send it with POST /v1/results first"
            raise HttpError(422, "no_record", message, "state")
        if state is State.FAILED and not end.message.strip():
            raise HttpError(422, "no_reason", "message is empty: say why the job failed", "message")
        return jobs.finish(job, state, end.message)

    return await _in_turn(request, number, end, work)


@router.post("/jobs/{number}/give-back")
async def give_back(request: Request, number: Number, back: schema.GiveBackRequest) -> schema.Holds:
    """Leave a job to other workers, or end it where it was cancelled."""
    return await _in_turn(
        request,
        number,
        back,
        lambda jobs, job: jobs.give_back(job, back.message, counts=back.counts),
    )


async def _in_turn(
    request: Request, number: int, turn: schema.Turn, work: Callable[[SqlJobs, Job], bool]
) -> schema.Holds:
    """Work of the worker whose turn it is: one with another token has none.

    Raises ``HttpError``.
    """
    jobs = dependencies.store(request).jobs
    job = await known_job(request, number)
    if turn.worker.rpartition("/")[0] != dependencies.caller(request).name:
        message = f"{turn.worker} is no worker with the token {dependencies.caller(request).name}"
        raise HttpError(403, "another_worker", message, "worker")
    claim = request.state.claim
    mine = replace(job, worker=turn.worker, attempt=turn.attempt, claim=claim)
    return schema.Holds(holds=await dependencies.to_write(request, partial(work, jobs, mine)))
