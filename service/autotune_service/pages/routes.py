"""The routes of the pages. Each parses its address, asks the database, and shows what it found."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from autotune.domain.browsing import CheckFilter, NumberedTrial, SearchedKey
from autotune.domain.codec import to_data
from autotune.domain.job import State
from autotune.domain.outcome import OutcomeKind
from autotune.domain.record import Record
from autotune.wording.command import search_command
from autotune_service.dependencies import ask, snapshots_of, store
from autotune_service.errors import HttpError
from autotune_service.middleware.access import COOKIE, secret_of
from autotune_service.pages import problem, versions
from autotune_service.pages import trial as onetrial
from autotune_service.pages.candidates import candidates
from autotune_service.pages.filters import PAGE_ROWS, Pagination, Query, number_of, pages, query_of
from autotune_service.pages.jobs import is_for
from autotune_service.pages.next_steps import MOST as MOST_STEPS
from autotune_service.pages.next_steps import NextStep, next_steps, stale
from autotune_service.pages.overview import (
    MOST_TOOLCHAINS,
    SILENT,
    activities,
    cards,
    gained,
    history_lines,
    newest_first,
)
from autotune_service.pages.problems import rows
from autotune_service.pages.render import config_call, page
from autotune_service.pages.taking import taken
from autotune_service.snapshot_cache import IndexedSnapshot

router = APIRouter(include_in_schema=False)

_LATEST, _JOBS, _VERSIONS = 8, 100, 10


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The HTTP interface, with Swagger UI."""
    return await page(request, "docs.html", query=query_of(request).done())


@router.get("/")
async def overview(request: Request) -> Response:
    """What runs, what tuning has gained, what is missing."""
    query, browse = query_of(request), store(request).browse
    snapshot = snapshots_of(request).current
    places = await ask(request, browse.targets)
    published = await ask(request, snapshot.places)
    toolchains = newest_first({p.toolchain for p in places} | {p[2] for p in published})
    only = query.toolchain(toolchains)
    shown = [only] if only else toolchains[:MOST_TOOLCHAINS]
    all_gained = await ask(request, gained, browse, snapshot)
    specs = [] if only else await ask(request, store(request).kernels)
    history = await ask(request, browse.history)
    latest = await ask(request, browse.latest, _LATEST)
    return await page(
        request,
        "overview.html",
        query=query.done(),
        toolchains=toolchains,
        shown=shown,
        only=only,
        scale=all_gained.scale,
        cards=await ask(
            request,
            cards,
            places,
            published,
            [spec.name for spec in specs],
            [one for one in all_gained.each if only in (None, one.key.toolchain)],
            shown,
            all_gained.scale,
        ),
        latest=rows(latest, snapshot),
        gained=all_gained,
        steps=await _next_steps(request, snapshot),
        snapshot=snapshot,
        searched=sum(p.searched for p in places),
        history=history,
        lines={**all_gained.lines, **await ask(request, history_lines, history)},
        **await _activity(request),
    )


@router.get("/running")
async def running(request: Request) -> Response:
    """That section alone: what an open overview asks for again and again."""
    return await page(request, "running.html", **await _activity(request))


async def _activity(request: Request) -> dict[str, Any]:
    since = datetime.now(UTC) - SILENT
    running = await ask(request, store(request).browse.running, since)
    jobs = await ask(request, store(request).jobs.list, State.RUNNING, _JOBS)
    queued = (await ask(request, store(request).jobs.counts)).get(State.QUEUED, 0)
    return {"running": activities(running, jobs), "queued": queued}


async def _next_steps(request: Request, snapshot: IndexedSnapshot) -> Sequence[NextStep]:
    browse = store(request).browse
    checks = await ask(request, browse.worst_checks, CheckFilter(), 0, MOST_STEPS * 2)
    misses = await ask(request, browse.missed_keys, 0, MOST_STEPS)
    old = (await ask(request, stale, snapshot))[:MOST_STEPS]
    numbers = await ask(request, browse.numbers, [key for key, _ in old])
    jobs = await ask(request, browse.open_jobs, _JOBS)
    found = [(key, numbers[key]) for key, _ in old if key in numbers]
    return next_steps(checks, misses, found, snapshot, jobs)


@router.get("/misses")
async def misses(request: Request) -> Response:
    """What was asked for and is not published."""
    query = query_of(request)
    number = query.page()
    offset = (number - 1) * PAGE_ROWS
    found = await ask(request, store(request).browse.missed_keys, offset, PAGE_ROWS + 1)
    total = offset + len(found)  # as far as is known: counting all would read them all
    return await page(
        request,
        "misses.html",
        query=query.done(),
        wanted=found[:PAGE_ROWS],
        pages=Pagination(number=number, total=total),
    )


@router.get("/keys/{key_id}")
async def key(request: Request, key_id: str) -> Response:
    """A problem on one chip with one toolchain: its search, and why its winner wins."""
    query, browse = query_of(request), store(request).browse
    searched, record = await _known(request, key_id)
    if not searched.trials and record is None:
        return await _never_searched(request, query, searched)
    found = await ask(request, problem.find, browse, searched.id, record)
    assert found is not None  # keys are never taken away
    view = await ask(request, problem.view, found, record, query)
    kind = query.choice("kind", [kind for kind, _ in searched.outcomes])
    fastest = query.choice("sort", ("number", "fastest")) == "fastest"
    if fastest and kind not in (None, OutcomeKind.ESTIMATED):
        query.notes.append("sort=fastest was ignored: such trials have no time.")
        fastest = False
    counts = dict(searched.outcomes)
    total = (
        counts[OutcomeKind.ESTIMATED]
        if fastest and OutcomeKind.ESTIMATED in counts
        else counts.get(kind or "", 0)
    )
    shown = pages(query, total if kind or fastest else searched.trials)
    table = partial(browse.trials, fastest=fastest, offset=shown.offset, limit=PAGE_ROWS)
    listed = await ask(request, table, searched.id, kind)
    importance = await _importance(request, query, found.drawn)
    return await page(
        request,
        "key.html",
        query=query.done(),
        view=view,
        searched=searched,
        record=record,
        speed=view.speed,
        kind=kind,
        fastest=fastest,
        pages=shown,
        rows=candidates(listed, record),
        newest=found.newest,
        status=await ask(request, store(request).searches.status, searched.id),
        others=len(await ask(request, browse.other_toolchains, searched.key)),
        chips=await ask(request, browse.other_chips, searched.key),
        served=await ask(request, browse.published, searched.id, _VERSIONS),
        is_pinned=await ask(request, browse.is_pinned, searched.id),
        take=taken(record, str(request.base_url).rstrip("/") + config_call(searched.key))
        if record
        else (),
        importance=importance,
    )


async def _importance(
    request: Request, query: Query, drawn: Sequence[NumberedTrial]
) -> Sequence[tuple[str, float]] | None:
    """None: it was not asked for, or cannot be computed here. In a thread, for one reader at a
    time: it takes a second, which many together would take from the lookups."""
    if query.choice("importance", ["1"]) is None:
        return None
    lock: Lock = request.state.importance

    def alone() -> tuple[bool, Sequence[tuple[str, float]] | None]:
        """A thread goes on when nobody waits for it any more: it frees the lock itself."""
        if not lock.acquire(blocking=False):
            return True, None
        try:
            return False, problem.importance(drawn)
        finally:
            lock.release()

    is_busy, found = await ask(request, alone)
    if is_busy:
        query.notes.append("The importance of axes is being computed for others: load it again.")
    elif found is None:
        query.notes.append("The importance of axes needs Optuna: pip install optuna.")
    return found


async def _never_searched(request: Request, query: Query, searched: SearchedKey) -> Response:
    """A problem that was asked for, or has been checked, and has no trials."""
    jobs = await ask(request, store(request).browse.open_jobs, _JOBS)
    return await page(
        request,
        "unsearched.html",
        query=query.done(),
        searched=searched,
        body=json.dumps(to_data(searched.key)),
        command=search_command(searched.key),
        job=next((job for job in jobs if is_for(job, searched.key)), None),
    )


@router.get("/toolchains/{key_id}")
async def toolchains(request: Request, key_id: str) -> Response:
    """The same kernel, problem and chip under every toolchain that was searched with."""
    query, browse = query_of(request), store(request).browse
    searched, _ = await _known(request, key_id)
    columns = await ask(request, versions.columns, browse, searched, snapshots_of(request).current)
    ids = [column.searched.id for column in columns]
    same = await ask(request, browse.same_configs, ids, versions.FASTEST)
    lines = versions.lines(same, columns)
    return await page(
        request,
        "toolchains.html",
        query=query.done(),
        searched=searched,
        columns=columns,
        lines=lines,
        plot=versions.times(columns),
    )


@router.get("/trials/{trial_id}")
async def trial(request: Request, trial_id: str) -> Response:
    """Everything that is known about one."""
    query, browse = query_of(request), store(request).browse
    found = await ask(request, onetrial.find, browse, number_of(trial_id, "trial"))
    if found is None:
        raise HttpError(404, "unknown_trial", f"There is no trial {trial_id}.")
    searched, one = found
    record = snapshots_of(request).current.index.exact(searched.key)
    around = await ask(request, onetrial.neighbours, browse, searched.id, one)
    told = await ask(request, store(request).searches.progress, searched.key)
    view = onetrial.view(searched, one, record, around, told.asked)
    return await page(request, "trial.html", query=query.done(), view=view)


@router.get("/session")
async def session(request: Request) -> Response:
    """Where reading is closed: keeps the token of this call for the pages. Scripts cannot read the
    cookie, other sites cannot make the browser send it but by a link that is followed, and nothing
    can be written with it."""
    response = Response(status_code=204)
    response.set_cookie(
        COOKIE,
        secret_of(request.scope),
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    return response


@router.get("/session/end")
async def sign_out() -> Response:
    """Forgets the token of this browser."""
    response = RedirectResponse("/", 303)
    response.delete_cookie(COOKIE, httponly=True, samesite="lax")
    return response


async def _known(request: Request, key_id: str) -> tuple[SearchedKey, Record | None]:
    """A key and what is published for it. Raises ``HttpError``."""
    searched = await ask(request, store(request).browse.searched, number_of(key_id, "problem"))
    if searched is None:
        raise HttpError(404, "unknown_key", f"There is no problem {key_id}.")
    return searched, snapshots_of(request).current.index.exact(searched.key)
