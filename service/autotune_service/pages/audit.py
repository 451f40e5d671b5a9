"""The page of the audit log, for administrators."""

from fastapi import APIRouter, Request, Response

from autotune_service.dependencies import ADMIN_ONLY, ask, store
from autotune_service.pages.filters import PAGE_ROWS, query_of
from autotune_service.pages.render import page

router = APIRouter(include_in_schema=False)


@router.get("/audit", dependencies=[ADMIN_ONLY])
async def audit(request: Request) -> Response:
    """Who wrote what, the newest first. Needs a token with the role admin."""
    query = query_of(request)
    before = query.number("before")
    found = await ask(request, store(request).audit.entries, PAGE_ROWS + 1, before)
    entries = found[:PAGE_ROWS]
    older = entries[-1].number if len(found) > PAGE_ROWS else None
    return await page(request, "audit.html", query=query.done(), entries=entries, older=older)
