"""The routes that write. That the caller may write was seen to by the middleware."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from autotune.answering.push import checked, possible_check
from autotune.domain.errors import InvalidInputError, StoreError
from autotune.domain.job import Job, request_of
from autotune.domain.job import Request as Wanted
from autotune.domain.key import KernelSpec
from autotune.domain.problem import Problem
from autotune.domain.record import Check
from autotune.domain.store import KeyResult, Pushed, tell_of
from autotune.domain.token import ADMIN
from autotune_service.api.bodies import BodyRoute
from autotune_service.api.forms import Answered
from autotune_service.api.reading import Number
from autotune_service.api.schema import JobRequest, Made, PushRequest
from autotune_service.dependencies import (
    BEARER,
    ERRORS,
    KNOWN_PARAMETERS,
    ask,
    caller,
    store,
    to_write,
)
from autotune_service.errors import HttpError
from autotune_service.middleware.access import require


def _admin(request: Request) -> None:
    require(caller(request), ADMIN)


_ALL = [BEARER, KNOWN_PARAMETERS]
router = APIRouter(
    prefix="/v1", tags=["publishing"], responses=ERRORS, dependencies=_ALL, route_class=BodyRoute
)
admin_router = APIRouter(
    prefix="/v1", tags=["administration"], responses=ERRORS, dependencies=[*_ALL, Depends(_admin)]
)


@router.post("/results")
async def results(request: Request, pushed: PushRequest) -> Answered[Pushed]:
    """Publish what another machine has found: all or, where something cannot be true, nothing.

    Only verified records are taken, and none that is slower than the kernel's default. They are
    *claimed*, and answers only to callers who accept that, until a worker with the database has
    confirmed them. Checks, which may be of records that others have pushed, are taken by a service
    with ``--trust-writers`` only.
    """
    if pushed.checks and not request.state.trust_writers:
        message = "a service takes checks only with --trust-writers: push records alone"
        raise HttpError(403, "not_believed", message, "checks")
    stored = await ask(request, store(request).kernels)  # what is known is not for a push to say
    loop, pool = asyncio.get_running_loop(), request.state.pushes
    kernels, results, checks = await loop.run_in_executor(pool, _possible, pushed, stored)
    with _contradictions("the push", "kernels"):
        done = await to_write(request, store(request).push, kernels, results, caller(request).name)
    if request.state.recheck:
        keys = [result.record.key for result in results]
        waiting = await to_write(request, store(request).check_claims, keys)
        done = replace(done, candidates=waiting)
    if request.state.trust_writers:
        done = replace(done, trusted=True)
        records = [result.record for result in results]
        known = [
            (record.key, record.config, check) for record in records for check in record.checks
        ]
        await to_write(request, store(request).publish_checks, known, caller(request).name)
    if checks:
        done = await _push_checks(request, checks, done)
    await _take_over(request)
    return done


def _possible(
    pushed: PushRequest, stored: Sequence[KernelSpec]
) -> tuple[list[KernelSpec], list[KeyResult], list[Check]]:
    """What was pushed. Raises ``HttpError`` for what cannot be true."""
    known = {(spec.name, spec.fingerprint): spec for spec in (*pushed.kernels, *stored)}
    now = datetime.now(UTC)
    results = []
    for number, result in enumerate(pushed.results):
        key = result.record.key
        with _contradictions(f"result {number} of {key.kernel}", f"results[{number}]"):
            results.append(checked(result, known.get((key.kernel, key.fingerprint)), now))
    checks = []
    for number, check in enumerate(pushed.checks):
        key = check.key
        with _contradictions(f"check {number} of {key.kernel}", f"checks[{number}]"):
            checks.append(possible_check(check, known.get((key.kernel, key.fingerprint)), now))
    return pushed.kernels, results, checks


async def _push_checks(request: Request, checks: list[Check], done: Pushed) -> Pushed:
    """What is in force is noted on the records, unless they have another config by now."""
    saved = await to_write(request, store(request).push_checks, checks, caller(request).name)
    await to_write(request, tell_of, store(request), saved, caller(request).name)
    newest = await ask(request, store(request).snapshots, 1)
    return replace(done, checks=len(saved), snapshot=newest[0].number if newest else 0)


@contextmanager
def _contradictions(what: str, field: str) -> Iterator[None]:
    try:
        yield
    except InvalidInputError as error:
        message = f"{what} cannot be taken: {error}"
        raise HttpError(422, "contradiction", message, field) from error


_OF_THE_JOB = {"parameters": {"number": "$response.body#/number"}}
_THEN: dict[str, Any] = {
    "links": {name: {"operationId": name, **_OF_THE_JOB} for name in ("job", "cancel")}
}
"""What can be asked of a job that was made, for clients that follow links."""


@router.post(
    "/jobs", status_code=201, responses={200: {"model": Answered[Job], **_THEN}, 201: _THEN}
)
async def new_job(request: Request, asked: JobRequest, response: Response) -> Answered[Job]:
    """Ask for a search. The same request while it is open is the same job, with status 200."""
    wanted = await _wanted(request, asked)
    job, is_new = await to_write(request, store(request).jobs.add, wanted, caller(request).name)
    response.status_code = 201 if is_new else 200
    return job


@router.post("/jobs/{number}/cancel")
async def cancel(request: Request, number: Number) -> Answered[Job]:
    """A queued one at once; one that runs when its worker hears of it, within seconds. What it has
    found stays. One that has ended is left as it is."""
    job = await to_write(request, store(request).jobs.cancel, number)
    if job is None:
        raise HttpError(404, "unknown_job", f"there is no job {number}", "number")
    return job


@admin_router.post("/snapshots/{number}/rollback")
async def roll_back(request: Request, number: Number) -> Made:
    """Make a new snapshot with the records of an older one. Publishing goes on from there."""
    return await _made(request, store(request).roll_back, "snapshot", number)


@admin_router.post("/records/{number}/pin")
async def pin(request: Request, number: Number) -> Made:
    """From a new snapshot on, the key of this record keeps it, whatever is published."""
    return await _made(request, store(request).pin, "record", number)


@admin_router.post("/records/{number}/unpin")
async def unpin(request: Request, number: Number) -> Made:
    """From a new snapshot on, the key of this record has its newest one again."""
    return await _made(request, store(request).unpin, "record", number)


async def _made(
    request: Request, work: Callable[[int, str], int | None], of: str, number: int
) -> Made:
    snapshot = await to_write(request, work, number, caller(request).name)
    if snapshot is None:
        raise HttpError(404, "not_found", f"there is no {of} {number}", "number")
    await _take_over(request)
    return Made(snapshot=snapshot)


async def _take_over(request: Request) -> None:
    """This process answers from what was written here as soon as the writer is told."""
    with suppress(StoreError):  # what was written is there, and is taken over a little later
        await request.state.snapshots.refresh()
        await request.state.claimed.refresh()


async def _wanted(request: Request, asked: JobRequest) -> Wanted:
    if asked.miss is not None:
        given = asked.model_fields_set - {"miss", "trials"}
        if given:
            message = f"a miss says all: leave out {', '.join(sorted(given))}"
            raise HttpError(422, "invalid_field", message, "miss")
        missed = await ask(request, store(request).miss, asked.miss)
        if missed is None:
            raise HttpError(404, "unknown_miss", f"there is no miss {asked.miss}", "miss")
        return request_of(missed.key, asked.trials)
    for field in ("kernel", "problem", "chip"):
        if getattr(asked, field) is None:
            raise HttpError(422, "missing_field", f"{field} is missing", field)
    assert asked.kernel is not None and asked.problem is not None and asked.chip is not None
    return Wanted(
        kernel=asked.kernel,
        problem=await _problem(request, asked.kernel, asked.fingerprint, asked.problem),
        chip=asked.chip,
        fingerprint=asked.fingerprint,
        toolchain=asked.toolchain,
        trials=asked.trials,
    )


async def _spec(request: Request, name: str, fingerprint: str | None) -> KernelSpec:
    """What is known of a kernel: workers and pushes describe theirs."""
    kernel = await ask(request, store(request).kernel, name, fingerprint)
    if kernel is None:
        known = sorted({spec.name for spec in await ask(request, store(request).kernels)})
        version = f" with the fingerprint {fingerprint}" if fingerprint else ""
        message = f"unknown kernel {name}{version}: there is {', '.join(known) or 'none'}"
        raise HttpError(404, "unknown_kernel", message, "kernel")
    return kernel


async def _problem(
    request: Request, kernel: str, fingerprint: str | None, given: Problem
) -> Problem:
    """In the spelling of the newest version; of an older one where only that takes it, and none is
    asked for: who describes another version takes no job from the workers with this one."""
    newest = await _spec(request, kernel, fingerprint)
    try:
        return _declared(given, newest)
    except InvalidInputError as error:
        others = () if fingerprint else await ask(request, store(request).kernels)
        for spec in others:
            if spec.name == kernel:
                with suppress(InvalidInputError):
                    return _declared(given, spec)
        raise HttpError(422, "invalid_problem", str(error), "problem") from error


def _declared(given: Problem, spec: KernelSpec) -> Problem:
    return spec.problems.problem(dict(given.dims), given.dtype, dict(given.options))
