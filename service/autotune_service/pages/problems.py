"""Lists of problems: of one kernel, or all that fit what somebody looks for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from autotune.domain.browsing import KeyFilter, KeyOrder, SearchedKey
from autotune.domain.record import Record
from autotune_service.dependencies import ask, snapshots_of, store
from autotune_service.errors import HttpError
from autotune_service.pages.filters import PAGE_ROWS, Query, pages, query_of
from autotune_service.pages.overview import newest_first
from autotune_service.pages.ranges import TimeLine, time_lines
from autotune_service.pages.render import page
from autotune_service.pages.speed import Speed, speed
from autotune_service.snapshot_cache import IndexedSnapshot

router = APIRouter(include_in_schema=False)

_STATES = {"published": True, "unpublished": False}  # ever, never
_MOST_WORDS = 6  # each is looked for in every problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRow:
    """A problem with what is published for it in the snapshot in force."""

    searched: SearchedKey
    record: Record | None
    speed: Speed | None

    @property
    def lines(self) -> Sequence[TimeLine]:
        return time_lines(self.record, with_default=False) if self.record else ()


def rows(found: Sequence[SearchedKey], snapshot: IndexedSnapshot) -> list[ProblemRow]:
    return [_row(one, snapshot.index.exact(one.key)) for one in found]


def _row(searched: SearchedKey, record: Record | None) -> ProblemRow:
    return ProblemRow(searched=searched, record=record, speed=speed(record) if record else None)


@router.get("/problems")
async def problems(request: Request) -> Response:
    """All that fit; the problem itself where it is the only one that was looked for."""
    query = query_of(request)
    asked_only = set(query.given) == {"q"}
    snapshot = snapshots_of(request).current
    only, choices = await key_filter(request, query, None)
    shown = pages(query, await ask(request, store(request).browse.count_problems, only))
    if asked_only and shown.total == 1:
        for one in await ask(request, store(request).browse.problems, only, 0, 1):
            return RedirectResponse(f"/keys/{one.id}", 303)
    specs = {spec.name for spec in await ask(request, store(request).kernels)}
    named = [
        name for name in sorted(specs) if only.words and all(word in name for word in only.words)
    ]
    values = await _listed(request, query, only, shown, snapshot)
    return await page(request, "problems.html", kernel=None, named=named, **choices, **values)


@router.get("/kernels/{name:path}")
async def kernel(request: Request, name: str) -> Response:
    """Its problems, and what is published for them."""
    query, browse = query_of(request), store(request).browse
    spec = await ask(request, store(request).kernel, name)
    total = await ask(request, browse.count_problems, KeyFilter(kernel=name))
    if spec is None and not total:
        raise HttpError(404, "unknown_kernel", f"There is no kernel {name}.")
    snapshot = snapshots_of(request).current
    only, choices = await key_filter(request, query, name)
    shown = pages(query, await ask(request, browse.count_problems, only))
    values = await _listed(request, query, only, shown, snapshot)
    return await page(request, "problems.html", kernel=name, spec=spec, **choices, **values)


async def key_filter(
    request: Request, query: Query, kernel: str | None
) -> tuple[KeyFilter, dict[str, Any]]:
    """What the address asks for, and what there is to choose from."""
    places = await ask(request, store(request).browse.places, kernel)
    chips = sorted({chip for chip, _ in places})
    toolchains = newest_first({toolchain for _, toolchain in places})
    state = query.choice("state", list(_STATES))
    words = list(dict.fromkeys(query.text("q").split()))
    if len(words) > _MOST_WORDS:
        query.notes.append(f"Only the first {_MOST_WORDS} words were looked for.")
    only = KeyFilter(
        kernel=kernel,
        words=tuple(words[:_MOST_WORDS]),
        has_record=_STATES[state] if state else None,
        chip=query.chip(chips),
        toolchain=query.toolchain(toolchains),
    )
    return only, {"chips": chips, "toolchains": toolchains, "state": state}


def order_of(query: Query) -> KeyOrder:
    return KeyOrder(query.choice("order", list(KeyOrder)) or KeyOrder.NEWEST)


async def _listed(
    request: Request, query: Query, only: KeyFilter, shown: Any, snapshot: IndexedSnapshot
) -> dict[str, Any]:
    order = order_of(query)
    browse = store(request).browse
    found = await ask(request, browse.problems, only, shown.offset, PAGE_ROWS, order)
    return {
        "query": query.done(),
        "only": only,
        "order": order,
        "pages": shown,
        "rows": rows(found, snapshot),
        "newest": snapshot.newest,
    }
