"""The routes that read and are not in a hurry: snapshots, records, checks, misses, jobs, health."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from autotune.domain.browsing import CheckFilter
from autotune.domain.codec import to_data
from autotune.domain.job import Job, State
from autotune.domain.key import Chip, Toolchain
from autotune.domain.record import CheckVerdict
from autotune.wording.match import action, check_in_words, finding
from autotune.wording.publication import in_words
from autotune_service.api import schema
from autotune_service.api.forms import Answered, Name
from autotune_service.api.lookup import wanted_snapshot
from autotune_service.api.questions import toolchain_of
from autotune_service.api.schema import Cursor, Page
from autotune_service.dependencies import (
    ADMIN_ONLY,
    BEARER,
    ERRORS,
    KNOWN_PARAMETERS,
    NOT_MODIFIED,
    IfNoneMatch,
    Limit,
    Responses,
    ask,
    snapshots_of,
    store,
    tagged,
)
from autotune_service.errors import HttpError, troubles
from autotune_service.middleware.metrics import CONTENT_TYPE

router = APIRouter(prefix="/v1", tags=["registry"], dependencies=[KNOWN_PARAMETERS])
unversioned = APIRouter(
    tags=["operation"], responses={422: ERRORS[422]}, dependencies=[KNOWN_PARAMETERS]
)
_READ: Responses = {code: ERRORS[code] for code in (401, 403, 404, 422, 429, 503)}
Number = Annotated[int, Path(ge=1, le=10**15)]


@router.get("/snapshots", responses=_READ)
async def snapshots(
    request: Request, limit: Limit = 50, cursor: schema.Cursor | None = None
) -> schema.Snapshots:
    """The newest first."""
    page = await ask(request, store(request).snapshots, limit + 1, number_of(cursor))
    in_force = (await snapshots_of(request.scope)).current.number
    return schema.Snapshots(in_force=in_force, snapshots=page[:limit], next=next_of(page, limit))


@router.get(
    "/snapshots/{number}",
    response_class=Response,
    responses={
        200: {
            "content": {"application/gzip": {"schema": {"type": "string", "format": "binary"}}},
            "description": "A bundle of records.",
        },
        304: NOT_MODIFIED,
        **_READ,
    },
)
async def snapshot(
    request: Request,
    number: schema.SnapshotName,
    accept_claimed: bool = False,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """All records of a snapshot, gzipped: a number, or ``latest``. Ask again with its ETag: another
    one has the number after the database was restored."""
    wanted = wanted_snapshot(number)
    snapshot = await (await snapshots_of(request.scope, claimed=accept_claimed)).at(wanted)
    content = await asyncio.to_thread(snapshot.bundle)
    headers = {"Cache-Control": "no-cache", "X-Snapshot": str(snapshot.number)}
    return tagged(if_none_match, content, "application/gzip", headers)


@router.get("/records", responses=_READ)
async def records(
    request: Request,
    kernel: Name | None = None,
    chip: Chip | None = None,
    limit: Limit = 50,
    cursor: schema.Cursor | None = None,
) -> schema.Records:
    """All that was ever published, with numbers, the newest first."""

    def find() -> schema.Records:  # with all that is made of records: in the thread
        page = store(request).published(kernel, chip, limit + 1, number_of(cursor))
        data = [
            schema.NumberedRecord(
                number=n, standing=record.standing, record=to_data(in_words(record))
            )
            for n, record in page
        ]
        return schema.Records(records=data[:limit], next=next_of(data, limit))

    return await ask(request, find)


@router.get("/misses", responses=_READ)
async def misses(
    request: Request, limit: Limit = 50, cursor: schema.Cursor | None = None
) -> schema.Misses:
    """What was asked for and is not published, the most wanted first."""
    after = None if cursor is None else (number_of(cursor) or 0, int(cursor.partition("-")[2] or 0))
    page = await ask(request, store(request).misses, limit + 1, after)
    last = page[limit - 1] if len(page) > limit else None
    following = f"{last.count}-{last.number}" if last else None
    return schema.Misses(misses=page[:limit], next=following)


@router.get("/jobs", responses=_READ)
async def jobs(
    request: Request,
    state: State | None = None,
    limit: Limit = 50,
    cursor: schema.Cursor | None = None,
) -> schema.JobList:
    """The newest first."""
    page = await ask(request, store(request).jobs.list, state, limit + 1, number_of(cursor))
    return schema.JobList(jobs=page[:limit], next=next_of(page, limit))


@router.get("/audit", responses=_READ, dependencies=[BEARER, ADMIN_ONLY])
async def audit(
    request: Request, limit: Limit = 50, cursor: schema.Cursor | None = None
) -> schema.Audit:
    """Who wrote what, the newest first. Needs a token with the role admin."""
    page = await ask(request, store(request).audit.entries, limit + 1, number_of(cursor))
    return schema.Audit(entries=page[:limit], next=next_of(page, limit))


def number_of(cursor: str | None) -> int | None:
    return None if cursor is None else int(cursor.partition("-")[0])


def next_of(page: Sequence[Any], limit: int) -> str | None:
    """``page``: at most ``limit``, and one more where it is not the last page."""
    return str(page[limit - 1].number) if len(page) > limit else None


@router.get("/jobs/{number}", responses=_READ)
async def job(request: Request, number: Number) -> Answered[Job]:
    """One, with the progress of its search."""
    return await known_job(request, number)


@router.get("/jobs/{number}/log", responses=_READ)
async def job_log(request: Request, number: Number) -> schema.JobLogs:
    """What its workers have said, by attempt."""
    job = await known_job(request, number)
    return schema.JobLogs(logs=await ask(request, store(request).jobs.logs, job.number))


async def known_job(request: Request, number: int) -> Job:
    job = await ask(request, store(request).jobs.get, number)
    if job is None:
        raise HttpError(404, "unknown_job", f"there is no job {number}", "number")
    return job


@unversioned.get("/healthz")
async def healthz(request: Request) -> schema.HealthData:
    """Answers from memory: a process that serves lookups is healthy without its database."""
    return _health(request)


@unversioned.get("/readyz", responses={503: {"model": schema.HealthData}})
async def readyz(request: Request, response: Response) -> schema.HealthData:
    """Whether newer snapshots reach this process: else a balancer may prefer others. `troubles`:
    sentences for people, of the database and the clock too."""
    health = _health(request)
    if health.database != "ok":
        health.status, response.status_code = "not ready", 503
    return health


def _health(request: Request) -> schema.HealthData:
    current, state = request.state.snapshots.current, request.state
    return schema.HealthData(
        status="ok",
        snapshot=current.number,
        snapshot_id=current.id,
        records=len(current),
        went_back_at=state.snapshots.went_back[1],
        database="ok" if state.database.is_up else "unavailable",
        troubles=list(troubles(state)),
    )


@unversioned.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """Made at the first call."""
    return JSONResponse(await asyncio.to_thread(request.app.openapi))


@unversioned.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """For Prometheus."""
    request.state.meter.hand_on()
    content = await asyncio.to_thread(request.state.meter.text)
    return Response(content, headers={"Content-Type": CONTENT_TYPE})


ToolchainName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_.+-]{1,200}(,[A-Za-z0-9_.+-]{1,200}){2}(,[^\x00-\x1f\x7f]+)?$")
]


class CheckData(BaseModel):
    """``finding`` and ``action``: sentences for people; ``check`` is what they were made from."""

    number: int
    finding: str
    action: str
    check: dict[str, Any]


class Checks(Page):
    checks: list[CheckData]


@router.get("/checks", response_model=Checks, responses={304: NOT_MODIFIED, **ERRORS})
async def checks(
    request: Request,
    kernel: Name | None = None,
    chip: Chip | None = None,
    made_with: Annotated[ToolchainName | None, Query(examples=["0.10.2,0.10.2,0.0.42.1"])] = None,
    toolchain: Annotated[ToolchainName | None, Query(examples=["0.12.0.1,0.12.0,0.0.44"])] = None,
    verdict: CheckVerdict | None = None,
    limit: Limit = 50,
    cursor: Cursor | None = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The last ones first. A config that is broken, or needs a limit, is no answer of a lookup.
    ``made_with``, ``toolchain``: the records' own, and the one that they were checked with, each as
    its versions of jax, jaxlib and libtpu, and where it has any its compiler options."""
    only = CheckFilter(
        kernel=kernel,
        chip=chip,
        made_with=_toolchain(made_with),
        toolchain=_toolchain(toolchain),
        verdict=verdict,
    )
    page = await ask(request, store(request).browse.checks, only, number_of(cursor), limit + 1)
    data = [
        CheckData(
            number=row.number,
            finding=finding(row.check),
            action=action(row.check),
            check=to_data(check_in_words(row.check)),
        )
        for row in page[:limit]
    ]
    content = Checks(checks=data, next=next_of(page, limit)).model_dump_json().encode()
    return tagged(if_none_match, content, "application/json", {"Cache-Control": "no-cache"})


def _toolchain(name: str | None) -> Toolchain | None:
    if name is None:
        return None
    jax, jaxlib, libtpu, *options = name.split(",", 3)
    return toolchain_of(jax=jax, jaxlib=jaxlib, libtpu=libtpu, options="".join(options))
