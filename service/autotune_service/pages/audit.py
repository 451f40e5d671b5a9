"""The page of the audit log, for administrators."""

from fastapi import APIRouter, Request, Response

from autotune.domain.token import ADMIN
from autotune_service.dependencies import ask, store
from autotune_service.errors import HttpError
from autotune_service.middleware.access import Access, require, secret_of
from autotune_service.pages.filters import query_of
from autotune_service.pages.render import page

_MOST = 200

router = APIRouter(include_in_schema=False)


@router.get("/audit")
async def audit(request: Request) -> Response:
    """Who wrote what, the newest first. Needs a token with the role admin."""
    access: Access = request.state.access
    token = access.reader(secret_of(request.scope))
    if token is None:
        raise HttpError(401, "invalid_token", "this page needs a token with the role admin")
    require(token, ADMIN)
    entries = await ask(request, store(request).audit.entries, _MOST)
    return await page(request, "audit.html", query=query_of(request).done(), entries=entries)
