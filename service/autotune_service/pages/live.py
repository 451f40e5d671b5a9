"""A search while it runs: server-sent events of what the terminal shows.

A stream lives for some seconds only and the browser comes back by itself: so a server that is told
to stop never waits for one, and nothing is left of a reader who has gone.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from autotune.domain.browsing import SearchedKey, SearchStatus
from autotune.domain.job import Job
from autotune_service.dependencies import ask, snapshots_of, store
from autotune_service.errors import HttpError
from autotune_service.middleware.access import address_of
from autotune_service.middleware.calls import STREAMED
from autotune_service.pages.filters import number_of
from autotune_service.pages.jobs import is_for
from autotune_service.pages.overview import SILENT

live = APIRouter(include_in_schema=False)

MOST_STREAMS = 40
MOST_OF_ADDRESS = 10
_EVERY_S = 1.0
_LIFE_S = 5.0  # shorter than the time that a server has for stopping
_BACK_MS = 200
_MOST_JOBS = 100


@live.get("/keys/{key_id}/events")
async def events(request: Request, key_id: str) -> StreamingResponse:
    """``progress`` at once and whenever something changed; ``id`` is the newest trial."""
    number = number_of(key_id, "problem")
    _refuse_too_many(request)  # before the database is asked
    if await ask(request, store(request).browse.searched, number) is None:
        raise HttpError(404, "unknown_key", f"There is no problem {key_id}.")
    return _LimitedStream(request, _stream(request, number))


def _refuse_too_many(request: Request) -> None:
    """Raises ``HttpError``."""
    streams: Counter[str] = request.state.streams
    if streams[address_of(request.scope)] >= MOST_OF_ADDRESS or streams.total() >= MOST_STREAMS:
        raise HttpError(429, "too_many_streams", "too many pages follow a search: try again")


class _LimitedStream(StreamingResponse):
    """Each of its seconds costs questions to the database: an address, and all together, may have
    so many at a time. Raises ``HttpError``."""

    def __init__(self, request: Request, content: AsyncIterator[str]) -> None:
        self._open: Counter[str] = request.state.streams
        self._address = address_of(request.scope)
        _refuse_too_many(request)
        self._open[self._address] += 1
        headers = {"Cache-Control": "no-store"}
        super().__init__(content, media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[STREAMED] = True
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._open[self._address] -= 1
            self._open += Counter()  # forgets those that have none


async def _stream(request: Request, key_id: int) -> AsyncIterator[str]:
    sent = ""
    yield f"retry: {_BACK_MS}\n\n"
    for _ in range(round(_LIFE_S / _EVERY_S)):
        try:
            newest, data = await ask(request, _look, request, key_id)
        except HttpError:  # the database is gone: the next stream tries again
            return
        if data is None:
            return
        text = json.dumps(data)
        if text != sent:
            sent = text
            yield f"event: progress\nid: {newest}\ndata: {text}\n\n"
        await asyncio.sleep(_EVERY_S)
        if await request.is_disconnected():
            return


def _look(request: Request, key_id: int) -> tuple[int, dict[str, Any] | None]:
    browse = store(request).browse
    newest, searched = browse.newest(key_id), browse.searched(key_id)
    if searched is None:  # a miss that is forgotten takes its key along
        return newest, None
    job = next((job for job in browse.open_jobs(_MOST_JOBS) if is_for(job, searched.key)), None)
    record = snapshots_of(request).current.index.exact(searched.key)
    return newest, {
        "newest": newest,
        **progress(searched),
        "job": job and job_progress(job),
        "search": search_progress(store(request).searches.status(key_id), datetime.now(UTC)),
        "published": record and record.created_at.isoformat(),
    }


def progress(searched: SearchedKey) -> dict[str, Any]:
    """What the terminal shows while a search runs."""
    default, best = searched.default_us, searched.best_us
    return {
        "trials": searched.trials,
        "outcomes": dict(searched.outcomes),
        "best_us": best,
        "times_default": default / best if default and best else None,
    }


def job_progress(job: Job) -> dict[str, Any]:
    p = job.progress
    return {
        "number": job.number,
        "state": job.state.value,
        "done": p.done,
        "goal": job.goal,
        "note": p.note,
    }


def search_progress(status: SearchStatus | None, now: datetime) -> dict[str, Any] | None:
    """None where no search runs, or where it has died."""
    if status is None or status.over or now - status.heard_at > SILENT:
        return None
    p = status.progress
    return {"done": p.done, "goal": p.goal, "note": p.note}
