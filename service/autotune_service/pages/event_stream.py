"""A search while it runs: server-sent events of what the terminal shows.
On each, ``renew`` in ``static/dashboard.js`` fetches the page again and puts its parts in place.

A stream lives for some seconds only and the browser comes back by itself: so a server that is told
to stop never waits for one, and nothing is left of a reader who has gone.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from autotune.domain.job import Progress
from autotune_service.dependencies import ask
from autotune_service.errors import HttpError
from autotune_service.middleware.access import address_of
from autotune_service.middleware.calls import STREAMED
from autotune_service.pages.call import PageCall
from autotune_service.pages.jobs import MOST_JOBS, job_for

live = APIRouter(include_in_schema=False)

MOST_STREAMS = 40
MOST_OF_ADDRESS = 10
_EVERY_S = 1.0
_LIFE_S = 5.0  # shorter than the time that a server has for stopping
_BACK_MS = 200


@live.get("/keys/{key_id}/events")
async def events(request: Request) -> StreamingResponse:
    """``progress`` at once and whenever something changed; ``id`` is the newest trial."""
    _refuse_too_many(request)  # before the database is asked
    searched = await ask(request, PageCall(request).searched)
    return _LimitedStream(request, _stream(request, searched.id))


def _refuse_too_many(request: Request) -> None:
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
    """The newest trial, and what the terminal shows while a search runs."""
    call = PageCall(request)
    newest, searched = call.browse.newest(key_id), call.browse.searched(key_id)
    if searched is None:  # a miss that is forgotten takes its key along
        return newest, None
    jobs = call.browse.open_jobs(MOST_JOBS)
    job = job_for(searched.key, jobs)
    record, status = call.record(searched.key), call.store.searches.status(key_id)
    default_us, best_us = searched.default_us, searched.best_us
    return newest, {
        "newest": newest,
        "trials": searched.trials,
        "outcomes": dict(searched.outcomes),
        "best_us": best_us,
        "best_verified": searched.best_verified,
        "times_default": default_us / best_us if default_us and best_us else None,
        "job": job
        and {
            "number": job.number,
            "state": job.state.value,
            **_how_far(replace(job.progress, goal=job.goal)),
        },
        "search": _how_far(status.progress)
        if status and status.is_alive(datetime.now(UTC))
        else None,
        "published": record and record.created_at.isoformat(),
    }


def _how_far(progress: Progress) -> dict[str, Any]:
    return {"done": progress.done, "goal": progress.goal, "note": progress.note}
