"""The queue, with all states: what was asked for, who has it, and why nobody takes it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from autotune.domain.codec import to_data
from autotune.domain.job import LEASE_S, MOST_LOG, Job, State
from autotune.domain.key import Key
from autotune.wording.terms import ENDINGS, why_waiting
from autotune.wording.units import seconds
from autotune_db.browse import JOB_ORDER
from autotune_service.errors import HttpError
from autotune_service.pages.call import PageCall
from autotune_service.pages.filters import PAGE_ROWS, Query, number_of, pages
from autotune_service.pages.render import kernel_path, link

MOST_JOBS = 100  # that are looked at for one of a problem
_OPEN = (State.QUEUED, State.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """``link``: to the problem as far as the request says which. ``again``: the body of the same
    request, empty while it is open. ``why``: what it waits for."""

    job: Job
    link: str
    again: str
    why: str

    @property
    def is_open(self) -> bool:
        return self.job.state in _OPEN


def show(call: PageCall) -> dict[str, Any]:
    """All jobs, or those in one state."""
    counts = call.store.jobs.counts()
    states, order = asked_for(call.query)
    shown = pages(call.query, sum(counts.get(state, 0) for state in states))
    jobs = call.browse.jobs(states, shown.offset, PAGE_ROWS, order)
    return {
        "state": states[0] if len(states) == 1 else None,
        "order": order,
        "counts": counts,
        "states": list(State),
        "lines": lines(call, jobs),
        "timeline": _timeline(jobs),
        "pages": shown,
    }


def asked_for(query: Query) -> tuple[list[str], str]:
    """The states that jobs may be in, and the order."""
    states = [state.value for state in State]
    state = query.choice("state", states)
    return [state] if state else states, query.order(JOB_ORDER)


def show_one(call: PageCall) -> dict[str, Any]:
    """One, with what its workers have said, and say."""
    number = number_of(call.path["number"], "job")
    job = call.store.jobs.get(number)
    if job is None:
        raise HttpError(404, "unknown_job", f"there is no job {number}", "number")
    (line,) = lines(call, [job])
    logs = call.store.jobs.logs(number)
    return {"line": line, "logs": logs, "most_log": MOST_LOG, "endings": ENDINGS}


def lines(call: PageCall, jobs: Sequence[Job]) -> list[JobLine]:
    heard_from = datetime.now(UTC) - timedelta(seconds=LEASE_S)
    running = call.store.jobs.list(State.RUNNING, PAGE_ROWS)
    alive = {job.worker for job in running if job.heard_at and job.heard_at > heard_from}
    return [_line(job, len(alive)) for job in jobs]


def _line(job: Job, workers: int) -> JobLine:
    """``workers``: how many have a job now."""
    asked = job.request
    words = " ".join(f"{name}={size}" for name, size in asked.problem.dims)
    is_repeatable = job.state not in _OPEN and asked.candidate is None
    # As ``POST /v1/jobs`` takes it.
    request = {name: value for name, value in to_data(asked).items() if value is not None}
    return JobLine(
        job=job,
        link=link(kernel_path(asked.kernel), chip=asked.chip.value, q=words),
        again=json.dumps(request) if is_repeatable else "",
        why=why_waiting(asked, workers) if job.state is State.QUEUED else "",
    )


def _timeline(jobs: Sequence[Job]) -> dict[str, Any] | None:
    """What each worker had when: (job, its start and its share in percent of the time that is
    drawn, what it was). None where no worker has or had one; one that was given back to the queue
    has no worker any more."""
    now = datetime.now(UTC)
    worked = [
        (job, job.started_at, job.finished_at or now)
        for job in sorted(jobs, key=lambda job: (job.worker, job.number))
        if job.worker and job.started_at
    ]
    if not worked:
        return None
    start, end = min(began for _, began, _ in worked), max(ended for *_, ended in worked)
    span_s = (end - start).total_seconds() or 1.0
    workers: dict[str, list[tuple[Job, float, float, str]]] = {}
    for job, began, ended in worked:
        took_s = (ended - began).total_seconds()
        at, share = (100 * s / span_s for s in ((began - start).total_seconds(), took_s))
        did = f"{job.request.kernel} {job.request.problem}: {job.state} after {seconds(took_s)}"
        workers.setdefault(job.worker, []).append((job, round(at, 2), round(share, 2), did))
    return {"start": start, "end": end, "workers": workers}


def job_for(key: Key, jobs: Iterable[Job]) -> Job | None:
    """The first that searches this key, as far as it says what it wants."""
    for job in jobs:
        wanted = job.request
        if (
            wanted.candidate is None
            and (wanted.kernel, wanted.problem, wanted.chip) == (key.kernel, key.problem, key.chip)
            and wanted.fingerprint in (None, key.fingerprint)
            and wanted.toolchain in (None, key.toolchain)
        ):
            return job
    return None
