"""The routes of the pages. Each parses its address, asks the database, and shows what it found."""

from functools import partial

from fastapi import APIRouter, Request, Response

from autotune.domain.browsing import KeyFilter, SearchedKey
from autotune.domain.outcome import OutcomeKind
from autotune.domain.record import Record
from autotune_service.dependencies import ask, snapshots_of, store
from autotune_service.errors import HttpError
from autotune_service.middleware.access import COOKIE, secret_of
from autotune_service.pages import kernel as kernels
from autotune_service.pages import problem, versions
from autotune_service.pages import trial as onetrial
from autotune_service.pages.candidates import candidates
from autotune_service.pages.filters import PAGE_ROWS, Pagination, pages, query_of
from autotune_service.pages.overview import coverage, kernel_path, newest_first
from autotune_service.pages.render import page

router = APIRouter(include_in_schema=False)

_LATEST, _JOBS = 10, 10


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The HTTP interface, with Swagger UI."""
    return await page(request, "docs.html", query=query_of(request).done())


@router.get("/")
async def overview(request: Request) -> Response:
    """What is tuned, what is missing."""
    query, browse, now = query_of(request), store(request).browse, snapshots_of(request)
    places = await ask(request, browse.targets)
    published = await ask(request, now.current.places)
    toolchains = newest_first({p.toolchain for p in places} | {p[2] for p in published})
    only = query.toolchain(toolchains)
    specs = await ask(request, store(request).kernels)
    wanted = await ask(request, browse.missed_keys, 0, PAGE_ROWS)
    grid = coverage(places, published, [spec.name for spec in specs], only)
    return await page(
        request,
        "overview.html",
        query=query.done(),
        toolchains=toolchains,
        only=only,
        grid=grid,
        latest=await ask(request, browse.latest, _LATEST),
        wanted=wanted[:_LATEST],
        more_wanted=len(wanted) > _LATEST,
        jobs=await ask(request, browse.open_jobs, _JOBS),
        snapshot=now.current,
        made_at=now.made_at,
        searched=sum(p.searched for p in places),
        kernel_path=kernel_path,
    )


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
        kernel_path=kernel_path,
    )


@router.get("/kernels/{name:path}")
async def kernel(request: Request, name: str) -> Response:
    """Its problems, and what is published for them."""
    query, browse = query_of(request), store(request).browse
    snapshot = snapshots_of(request).current
    spec, places = (
        await ask(request, store(request).kernel, name),
        await ask(request, browse.targets, name),
    )
    if spec is None and not places:
        raise HttpError(404, "unknown_kernel", f"There is no kernel {name}.")
    chips = sorted({place.chip for place in places})
    toolchains = newest_first({place.toolchain for place in places})
    only = KeyFilter(chip=query.chip(chips), toolchain=query.toolchain(toolchains))
    shown = pages(query, await ask(request, browse.count_problems, name, only))
    found = await ask(request, browse.problems, name, only, shown.offset, PAGE_ROWS)
    rows = kernels.rows(found, snapshot)
    return await page(
        request,
        "kernel.html",
        query=query.done(),
        name=name,
        spec=spec,
        chips=chips,
        toolchains=toolchains,
        only=only,
        pages=shown,
        rows=rows,
        plot=kernels.speedups(rows),
        measured=any(row.speed and row.speed.measured_us for row in rows),
        kernel_path=kernel_path,
    )


@router.get("/keys/{key_id}")
async def key(request: Request, key_id: str) -> Response:
    """A problem on one chip with one toolchain: its search, and why its winner wins."""
    query, browse = query_of(request), store(request).browse
    searched, record = await _known(request, key_id)
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
        kernel_path=kernel_path,
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
        kernel_path=kernel_path,
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
    return await page(request, "trial.html", query=query.done(), view=view, kernel_path=kernel_path)


@router.get("/session")
async def session(request: Request) -> Response:
    """Where reading is closed: keeps the token of this call for the pages. Scripts cannot read the
    cookie, other sites cannot make the browser send it, and nothing can be written with it."""
    response = Response(status_code=204)
    response.set_cookie(
        COOKIE,
        secret_of(request.scope),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


async def _known(request: Request, key_id: str) -> tuple[SearchedKey, Record | None]:
    """A key and what is published for it. Raises ``HttpError``."""
    searched = await ask(request, store(request).browse.searched, number_of(key_id, "problem"))
    if searched is None:
        raise HttpError(404, "unknown_key", f"There is no problem {key_id}.")
    return searched, snapshots_of(request).current.index.exact(searched.key)


def number_of(text: str, what: str) -> int:
    """Raises ``HttpError``."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise HttpError(404, f"unknown_{what}", f"There is no {what} {text[:40]}.")
    return int(text)
