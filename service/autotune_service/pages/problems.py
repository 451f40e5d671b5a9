"""Lists of problems: of one kernel, or all that fit what somebody looks for."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from starlette.responses import RedirectResponse

from autotune.domain.browsing import LIMITED, KeyFilter, KeyOrder, SearchedKey
from autotune.domain.record import Record
from autotune_service.errors import HttpError
from autotune_service.pages.call import PageCall
from autotune_service.pages.filters import PAGE_ROWS, Pagination, Query, newest_first, pages
from autotune_service.pages.speed import Speed, speed

_STATES = {"published": True, "unpublished": False}  # ever, never
_SPACED_LIMIT = re.compile(rf"\b({'|'.join(LIMITED)})\s*([<>]=?)\s*(?=\d)")
_MOST_WORDS = 6  # each is looked for in every problem


class ProblemRow(NamedTuple):
    """A problem with what is published for it in the snapshot in force."""

    searched: SearchedKey
    record: Record | None
    speed: Speed | None


def rows(call: PageCall, problems: Sequence[SearchedKey]) -> list[ProblemRow]:
    records = call.records([searched.key for searched in problems])
    return [
        ProblemRow(searched, record, speed(record) if record else None)
        for searched, record in zip(problems, records, strict=True)
    ]


def show(call: PageCall) -> dict[str, Any] | RedirectResponse:
    """All that fit; the problem itself where it is the only one that was looked for."""
    is_looked_for = set(call.query.given) == {"q"}
    only, choices = key_filter(call, None)
    shown = pages(call.query, call.browse.count_problems(only))
    if is_looked_for and shown.total == 1:
        for searched in call.browse.problems(only, 0, 1):
            return RedirectResponse(f"/keys/{searched.id}", 303)
    names = {spec.name for spec in call.store.kernels()} if only.words else ()
    named = sorted(name for name in names if all(word in name for word in only.words))
    return {"kernel": None, "named": named, **choices, **_listed(call, only, shown)}


def of_kernel(call: PageCall) -> dict[str, Any]:
    """The problems of a kernel, and what is published for them."""
    name = call.path["name"]
    spec = call.store.kernel(name)
    if spec is None and not call.browse.count_problems(KeyFilter(kernel=name)):
        raise HttpError(404, "unknown_kernel", f"There is no kernel {name}.")
    only, choices = key_filter(call, name)
    shown = pages(call.query, call.browse.count_problems(only))
    return {"kernel": name, "spec": spec, **choices, **_listed(call, only, shown)}


def key_filter(call: PageCall, kernel: str | None) -> tuple[KeyFilter, dict[str, Any]]:
    """What the address asks for, and what there is to choose from."""
    query, places = call.query, call.browse.places(kernel)
    chips = sorted({chip for chip, _ in places})
    toolchains = newest_first({toolchain for _, toolchain in places})
    state = query.choice("state", list(_STATES))
    asked = _SPACED_LIMIT.sub(r"\1\2", query.text("q"))
    words = list(dict.fromkeys(asked.split()))
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


def _listed(call: PageCall, only: KeyFilter, shown: Pagination) -> dict[str, Any]:
    order = order_of(call.query)
    problems = call.browse.problems(only, shown.offset, PAGE_ROWS, order)
    return {
        "only": only,
        "order": order,
        "pages": shown,
        "rows": rows(call, problems),
        "newest": call.snapshot.newest,
    }
