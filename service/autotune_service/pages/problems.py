"""Lists of problems: of one kernel, or all that fit what somebody looks for."""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from starlette.responses import RedirectResponse

from autotune.domain.browsing import KeyFilter, KeySums, SearchedKey
from autotune.domain.record import Record
from autotune_db.browse import KEY_ORDER
from autotune_service.errors import HttpError
from autotune_service.pages.call import PageCall
from autotune_service.pages.filters import PAGE_ROWS, by_order, newest_first, pages
from autotune_service.pages.lanes import Gain, gains, lanes_of
from autotune_service.pages.speed import Speed, over, speed
from autotune_service.pages.states import states_of

_STATES = {"published": True, "unpublished": False}  # ever, never
_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_MOST_WORDS = 6  # each is looked for in every problem

_FIGURES: dict[str, Callable[[KeySums, Gain | None], float | None]] = {
    "time": lambda sums, gain: gain.time_us if gain else sums.best_us,
    "best": lambda sums, _: sums.best_us,
    "default": lambda sums, _: sums.default_us,
    "gain": lambda sums, gain: gain.over_default if gain else over(sums.default_us, sums.best_us),
    "xla": lambda _, gain: gain.over_xla if gain else None,
    "trials": lambda sums, _: sums.trials,
}
"""What lists are ordered by, and limited with: of what is proven and served, or else of the trials.
A claim is not ranked among what is proven."""
_LIMIT = re.compile(rf"(?<!\S)({'|'.join(_FIGURES)})\s*([<>]=?)\s*(\d+(?:\.\d*)?)(?!\S)")
_COLUMNS = ("chip", "toolchain", "gain", "xla", "trials", "best", "config")
_HIDDEN = ("best", "config")  # until somebody asks for them: a laptop has no room


class ProblemRow(NamedTuple):
    """A problem with what is published for it in the snapshot in force, and its states."""

    searched: SearchedKey
    record: Record | None
    speed: Speed | None
    states: Sequence[str]


def rows(call: PageCall, problems: Sequence[SearchedKey]) -> list[ProblemRow]:
    records = call.records([searched.key for searched in problems])
    states = states_of(call, problems, records)
    return [
        ProblemRow(searched, record, speed(record) if record else None, its)
        for searched, record, its in zip(problems, records, states, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an address asks for. ``limits``: figure, sign and number."""

    only: KeyFilter
    limits: Sequence[tuple[str, str, str]]
    order: str


class Found:
    """All that fits, in order: as the database has it, unless a figure decides."""

    def __init__(self, call: PageCall, asked: Asked) -> None:
        self._call = call
        figure = asked.order.removeprefix("-")
        if asked.limits or figure in _FIGURES:
            self._ids = _ordered(call, asked, figure if figure in _FIGURES else "")
        else:
            self._ids = call.browse.fitting(asked.only, asked.order)
        self.total = len(self._ids)

    def page(self, offset: int, limit: int) -> list[ProblemRow]:
        return rows(self._call, self._call.browse.numbered(self._ids[offset : offset + limit]))


def _ordered(call: PageCall, asked: Asked, figure: str) -> Sequence[int]:
    """Their numbers; what has no such figure comes last."""
    served = gains(call.snapshot, call.browse)
    pairs = [(sums, served.get(sums.id)) for sums in call.browse.sums(asked.only)]
    for name, sign, number in asked.limits:
        value, limit = _FIGURES[name], float(number)
        pairs = [p for p in pairs if (v := value(*p)) is not None and _SIGNS[sign](v, limit)]
    if figure:
        pairs = by_order(pairs, lambda pair: _FIGURES[figure](*pair), asked.order)
    return [sums.id for sums, _ in pairs]


def show(call: PageCall) -> dict[str, Any] | RedirectResponse:
    """All that fit; the problem itself where it is the only one that was looked for."""
    is_looked_for = set(call.query.given) == {"q"}
    asked, choices = asked_for(call, None)
    shown = _listed(call, asked, choices)
    if is_looked_for and shown["pages"].total == 1:
        for row in shown["rows"]:
            return RedirectResponse(f"/keys/{row.searched.id}", 303)
    words = asked.only.words
    names = {spec.name for spec in call.store.kernels()} if words else ()
    named = sorted(name for name in names if all(word in name for word in words))
    return {"kernel": None, "named": named, **shown}


def of_kernel(call: PageCall) -> dict[str, Any]:
    """The problems of a kernel, and what is published for them."""
    name = call.path["name"]
    spec = call.store.kernel(name)
    if spec is None and not call.browse.fitting(KeyFilter(kernel=name)):
        raise HttpError(404, "unknown_kernel", f"There is no kernel {name}.")
    return {
        "kernel": name,
        "spec": spec,
        **_lanes(call, name),
        **_listed(call, *asked_for(call, name)),
    }


def _lanes(call: PageCall, name: str) -> dict[str, Any]:
    """What is published of a kernel, by chip, against its default and plain XLA."""
    of_kernel = [g for g in gains(call.snapshot, call.browse).values() if g.key.kernel == name]
    drawn = lanes_of(of_kernel)
    lanes = [drawn.lanes[place] for place in sorted(drawn.lanes)]
    return {"scale": drawn.scale, "lanes": lanes if len(of_kernel) > 1 else ()}


def asked_for(call: PageCall, kernel: str | None) -> tuple[Asked, dict[str, Any]]:
    """What the address asks for, and what there is to choose from."""
    query, places = call.query, call.browse.places(kernel)
    chips = sorted({chip for chip, _ in places})
    toolchains = newest_first({toolchain for _, toolchain in places})
    state = query.choice("state", list(_STATES))
    text = query.text("q")
    words = list(dict.fromkeys(_LIMIT.sub(" ", text).split()))
    if len(words) > _MOST_WORDS:
        query.notes.append(f"Only the first {_MOST_WORDS} words were looked for.")
    only = KeyFilter(
        kernel=kernel,
        words=tuple(words[:_MOST_WORDS]),
        has_record=_STATES[state] if state else None,
        chip=query.chip(chips),
        toolchain=query.toolchain(toolchains),
    )
    order = query.order((*KEY_ORDER, *_FIGURES))
    asked = Asked(only=only, limits=_LIMIT.findall(text), order=order)
    return asked, {"chips": chips, "toolchains": toolchains, "state": state}


def _listed(call: PageCall, asked: Asked, choices: dict[str, Any]) -> dict[str, Any]:
    problems = Found(call, asked)
    shown = pages(call.query, problems.total)
    sorted_by = asked.order.removeprefix("-")
    return {
        **choices,
        "only": asked.only,
        "order": asked.order,
        "columns": _COLUMNS,
        "hidden": call.query.hidden(_COLUMNS, [c for c in _HIDDEN if c != sorted_by]),
        "pages": shown,
        "rows": problems.page(shown.offset, PAGE_ROWS),
    }
