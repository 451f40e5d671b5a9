"""The routes that are not in a hurry: snapshots, misses, health."""

import asyncio
from hashlib import blake2b
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from autotune.errors import StoreError
from autotune.key import key_to_data
from autotune.ports import Store
from service.held import Held
from service.lookup import wanted_snapshot
from service.refusal import unavailable
from service.schema import Error, Health, MissData, Misses, SnapshotData, Snapshots

router = APIRouter(prefix="/v1")
outside = APIRouter()  # what has no version
REFUSED: dict[int | str, dict[str, Any]] = {
    code: {"model": Error} for code in (400, 404, 413, 422, 503)
}
Limit = Annotated[int, Query(ge=1, le=1_000)]


def _held(request: Request) -> Held:
    held: Held = request.app.state.held
    return held


def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


@router.get("/snapshots", responses={503: {"model": Error}})
async def snapshots(request: Request, limit: Limit = 50) -> Snapshots:
    """The newest first."""
    try:
        found = await asyncio.to_thread(_store(request).snapshots, limit)
    except StoreError as error:
        raise unavailable() from error
    listed = [SnapshotData(number=one.number, created_at=one.created_at) for one in found]
    return Snapshots(in_force=_held(request).current.number, snapshots=listed)


@router.get(
    "/snapshots/{number}",
    response_class=Response,
    responses={
        200: {"content": {"application/gzip": {}}, "description": "A bundle of records."},
        304: {"description": "It is the one that the caller has."},
        **{code: REFUSED[code] for code in (404, 422, 503)},
    },
)
async def snapshot(
    request: Request, number: str, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """All records of a snapshot, gzipped: a number, or ``latest``. One with a number never
    changes."""
    wanted = wanted_snapshot(number)
    found = await _held(request).at(wanted)
    content = await asyncio.to_thread(found.bundle)
    tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
    forever = "public, max-age=31536000, immutable"
    headers = {
        "ETag": tag,
        "Cache-Control": "no-cache" if wanted is None else forever,
        "X-Snapshot": str(found.number),
    }
    if tag in [one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="application/gzip", headers=headers)


@router.get("/misses", responses={503: {"model": Error}})
async def misses(request: Request, limit: Limit = 50) -> Misses:
    """What was asked for and is not published, the most wanted first."""
    try:
        found = await asyncio.to_thread(_store(request).misses, limit)
    except StoreError as error:
        raise unavailable() from error
    return Misses(misses=[
        MissData(key=key_to_data(one.key), count=one.count, first_at=one.first_at,
                 last_at=one.last_at)
        for one in found
    ])  # fmt: skip


@outside.get("/health")
async def health(request: Request) -> Health:
    """Answers from memory: a process that serves lookups is healthy without its database."""
    current, state = _held(request).current, request.app.state
    return Health(
        status="ok", snapshot=current.number, records=len(current),
        database="ok" if state.database_ok else "unavailable",
    )  # fmt: skip
