"""The addresses of the pages: what makes each, and the template that shows it."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from autotune_db.misses import MISS_ORDER
from autotune_service.dependencies import ask, must_be_admin
from autotune_service.middleware.access import COOKIE, secret_of
from autotune_service.pages import (
    compare,
    jobs,
    overview,
    problem,
    problems,
    snapshots,
    states,
    trial,
    upgrades,
    versions,
    workloads,
)
from autotune_service.pages.call import PageCall
from autotune_service.pages.filters import PAGE_ROWS, pages
from autotune_service.pages.render import page

router = APIRouter(include_in_schema=False)

View = Callable[[PageCall], dict[str, Any] | Response]
"""What a template shows, or another answer in its place; a ``template`` in it goes before that of
the route. Called in a thread of the database."""


def docs(_: PageCall) -> dict[str, Any]:
    """The HTTP interface, with Swagger UI."""
    return {}


def misses(call: PageCall) -> dict[str, Any]:
    """What was asked for and is not published."""
    order = call.query.order(MISS_ORDER)
    shown = pages(call.query, call.browse.count_misses())
    wanted = call.browse.missed_keys(shown.offset, PAGE_ROWS, order)
    return {"wanted": wanted, "order": order, "pages": shown}


def audit(call: PageCall) -> dict[str, Any]:
    """Who wrote what, the newest first. Needs a token with the role admin."""
    must_be_admin(call.request)
    entries = call.store.audit.entries(PAGE_ROWS + 1, call.query.number("before"))
    shown = entries[:PAGE_ROWS]
    return {"entries": shown, "older": shown[-1].number if len(entries) > PAGE_ROWS else None}


PAGES: tuple[tuple[str, str, View], ...] = (
    ("/", "overview.html", overview.show),
    ("/running", "running.html", overview.running),
    ("/problems", "problems.html", problems.show),
    ("/kernels/{name:path}", "problems.html", problems.of_kernel),
    ("/keys/{key_id}", "key.html", problem.show),
    ("/toolchains/{key_id}", "toolchains.html", versions.show),
    ("/trials/{trial_id}", "trial.html", trial.show),
    ("/compare", "compare.html", compare.show),
    ("/jobs", "jobs.html", jobs.show),
    ("/jobs/{number}", "job.html", jobs.show_one),
    ("/misses", "misses.html", misses),
    ("/upgrades", "upgrades.html", upgrades.show),
    ("/workloads", "workloads.html", workloads.show),
    ("/workloads/{name:path}", "workload.html", workloads.show_one),
    ("/snapshots", "snapshots.html", snapshots.show),
    ("/audit", "audit.html", audit),
    ("/states", "states.html", states.show),
    ("/docs", "docs.html", docs),
)


def _add(path: str, template: str, view: View) -> None:
    async def answer(request: Request) -> Response:
        call = PageCall(request)
        shown = await ask(request, view, call)
        if isinstance(shown, Response):
            return shown
        values = {"template": template, "query": call.query.done(), **shown}
        return await page(request, **values)

    router.add_api_route(path, answer, name=path)


for _page in PAGES:
    _add(*_page)


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
