"""The queue, with all states: what was asked for, who has it, and why nobody takes it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Request, Response

from autotune.domain.codec import to_data
from autotune.domain.job import LEASE_S, MOST_LOG, Job, State
from autotune.domain.key import Key
from autotune.wording.jobs import why_waiting
from autotune.wording.units import seconds
from autotune_service.api.reading import known_job
from autotune_service.dependencies import ask, store
from autotune_service.pages.filters import PAGE_ROWS, number_of, query_of
from autotune_service.pages.render import kernel_path, link, page

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """``link``: to the problem, as far as the request says which. ``again``: the body of the same
    request, empty while it is open. ``why``: what it waits for."""

    job: Job
    link: str
    again: str
    why: str

    @property
    def is_open(self) -> bool:
        return self.job.state in (State.QUEUED, State.RUNNING)


@router.get("/jobs")
async def show(request: Request) -> Response:
    """All jobs, or those in one state, the newest first."""
    query, queue = query_of(request), store(request).jobs
    state = query.choice("state", [one.value for one in State])
    before = query.number("before")
    found = await ask(request, queue.list, State(state) if state else None, PAGE_ROWS + 1, before)
    now = datetime.now(UTC)
    running = await ask(request, queue.list, State.RUNNING, PAGE_ROWS)
    return await page(
        request,
        "jobs.html",
        query=query.done(),
        state=state,
        counts=await ask(request, queue.counts),
        states=list(State),
        lines=lines(found[:PAGE_ROWS], running, now),
        timeline=timeline(found[:PAGE_ROWS], now),
        older=found[PAGE_ROWS - 1].number if len(found) > PAGE_ROWS else None,
    )


@router.get("/jobs/{number}")
async def show_one(request: Request, number: str) -> Response:
    """One, with what its workers have said, and say."""
    queue = store(request).jobs
    job = await known_job(request, number_of(number, "job"))
    is_waiting = job.state is State.QUEUED
    running = await ask(request, queue.list, State.RUNNING, PAGE_ROWS) if is_waiting else []
    (line,) = lines([job], running, datetime.now(UTC))
    logs = await ask(request, queue.logs, job.number)
    query = query_of(request).done()
    return await page(request, "job.html", query=query, line=line, logs=logs, most_log=MOST_LOG)


def lines(found: Sequence[Job], running: Sequence[Job], now: datetime) -> list[JobLine]:
    """``running``: what workers have now."""
    alive = {
        job.worker
        for job in running
        if job.heard_at and now - job.heard_at < timedelta(seconds=LEASE_S)
    }
    return [_line(job, len(alive)) for job in found]


def _line(job: Job, workers: int) -> JobLine:
    asked, is_open = job.request, job.state in (State.QUEUED, State.RUNNING)
    words = " ".join(f"{name}={size}" for name, size in asked.problem.dims)
    return JobLine(
        job=job,
        link=link(kernel_path(asked.kernel), chip=asked.chip.value, q=words),
        again="" if is_open or asked.candidate is not None else request_body(job),
        why=why_waiting(job.request, workers) if job.state == State.QUEUED else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedJob:
    """``at`` and ``share`` in percent of the time that is drawn. ``text``: what it was."""

    number: int
    state: State
    at: float
    share: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTimeline:
    """What each worker had when."""

    start: datetime
    end: datetime
    workers: Mapping[str, Sequence[WorkedJob]]


def timeline(found: Sequence[Job], now: datetime) -> WorkerTimeline | None:
    """Of jobs that a worker has or had; None where there are none. One that was given back to the
    queue has no worker any more."""
    worked = [job for job in found if job.worker and job.started_at]
    ends = {job.number: job.finished_at or now for job in worked}
    if not worked:
        return None
    start, end = min(job.started_at or now for job in worked), max(ends.values())
    span = (end - start).total_seconds() or 1.0
    workers: dict[str, list[WorkedJob]] = {}
    for job in sorted(worked, key=lambda job: (job.worker, job.number)):
        began = job.started_at or now
        took_s = (ends[job.number] - began).total_seconds()
        asked = job.request
        workers.setdefault(job.worker, []).append(
            WorkedJob(
                number=job.number,
                state=job.state,
                at=round(100 * (began - start).total_seconds() / span, 2),
                share=round(100 * took_s / span, 2),
                text=f"{asked.kernel} {asked.problem}: {job.state} after {seconds(took_s)}",
            )
        )
    return WorkerTimeline(start=start, end=end, workers=workers)


def request_body(job: Job) -> str:
    """As ``POST /v1/jobs`` takes it."""
    asked: dict[str, Any] = to_data(job.request)
    return json.dumps({name: value for name, value in asked.items() if value is not None})


def is_for(job: Job, key: Key) -> bool:
    """Whether a job searches this key, as far as it says what it wants."""
    wanted = job.request
    return (
        (wanted.kernel, wanted.problem, wanted.chip) == (key.kernel, key.problem, key.chip)
        and wanted.fingerprint in (None, key.fingerprint)
        and wanted.toolchain in (None, key.toolchain)
    )
