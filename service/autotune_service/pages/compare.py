"""Trials and problems beside each other: what differs in their configs, and in their times."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from autotune.domain.browsing import NumberedTrial, SearchedKey
from autotune.domain.comparison import NamedEstimate
from autotune.domain.config import Config
from autotune.domain.explanation import PARTS
from autotune.domain.outcome import Estimate
from autotune.estimating.cost_model.comparison import compare
from autotune.wording.comparison import why
from autotune.wording.config import spelled_parts
from autotune.wording.facts import FACTS
from autotune.wording.units import error_bar, micros
from autotune_db.browse import SqlBrowse
from autotune_service.dependencies import ask, snapshots_of, store
from autotune_service.pages.filters import query_of
from autotune_service.pages.problem import served, share_text
from autotune_service.pages.ranges import bars
from autotune_service.pages.render import page
from autotune_service.pages.trial import find
from autotune_service.snapshot_cache import IndexedSnapshot

router = APIRouter(include_in_schema=False)

MOST = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One column. ``outcome``: what became of it, where it has no time."""

    name: str
    link: str
    searched: SearchedKey
    config: Config
    estimate: Estimate | None
    outcome: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLine:
    """``differs``: not the same in all columns."""

    name: str
    cells: Sequence[str]

    @property
    def differs(self) -> bool:
        return len(set(self.cells)) > 1


@router.get("/compare")
async def show(request: Request) -> Response:
    """``key`` and ``trial``, each as often as wanted."""
    given = request.query_params
    query = query_of(request)
    found: list[Compared] = []
    browse, snapshot = store(request).browse, snapshots_of(request).current
    kinds = {"key": _key, "trial": _trial}
    asked = [(name, text) for name in kinds for text in dict.fromkeys(given.getlist(name))]
    if len(asked) > MOST:
        query.notes.append(f"Only the first {MOST} are compared.")
    for name, text in asked[:MOST]:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
        one = await ask(request, kinds[name], browse, number, snapshot)
        if one is None:
            query.notes.append(f"{name}={text[:40]} was ignored: there is nothing to compare.")
        else:
            found.append(one)
    for name in kinds:
        query.given.pop(name, None)
    return await page(
        request,
        "compare.html",
        query=query.done(),
        columns=found,
        lines=lines(found),
        bars=bars([one.estimate for one in found]),
        said=_said(found),
    )


def _key(browse: SqlBrowse, number: int, snapshot: IndexedSnapshot) -> Compared | None:
    """What is served for a problem, or else the best trial of it."""
    searched = browse.searched(number)
    if searched is None:
        return None
    record = snapshot.index.exact(searched.key)
    place = f"problem {number} on {searched.key.chip.value}"
    if record is not None:
        trial = browse.with_config(number, record.config)
        return Compared(
            name=place,
            link=f"/keys/{number}",
            searched=searched,
            config=record.config,
            estimate=served(record, trial.trial.estimate if trial else None),
        )
    best = browse.trials(number, None, fastest=True, offset=0, limit=1)
    return _compared(f"the best trial of {place}", searched, best[0]) if best else None


def _trial(browse: SqlBrowse, number: int, _: IndexedSnapshot) -> Compared | None:
    found = find(browse, number)
    return _compared(f"trial {number}", *found) if found else None


def _compared(name: str, searched: SearchedKey, one: NumberedTrial) -> Compared:
    return Compared(
        name=name,
        link=f"/trials/{one.id}",
        searched=searched,
        config=one.trial.config,
        estimate=one.trial.estimate,
        outcome=f"{one.trial.outcome.kind}: {one.trial.outcome.reason}",
    )


def lines(found: Sequence[Compared]) -> list[ComparedLine]:
    """What they are, then what is known of their times."""
    configs = [spelled_parts(one.config) for one in found]
    names = dict.fromkeys(name for config in configs for name in config)
    made = [
        ComparedLine(name="kernel", cells=[one.searched.key.kernel for one in found]),
        ComparedLine(name="source", cells=[one.searched.key.fingerprint for one in found]),
        ComparedLine(name="problem", cells=[str(one.searched.key.problem) for one in found]),
        ComparedLine(name="chip", cells=[one.searched.key.chip.value for one in found]),
        ComparedLine(name="toolchain", cells=[str(one.searched.key.toolchain) for one in found]),
    ]
    made += [
        ComparedLine(name=name, cells=[str(config.get(name, "–")) for config in configs])
        for name in names
    ]
    made += _schedule([one.estimate for one in found])
    for name, cell in FACTS:
        cells = []
        for one in found:
            e = one.estimate
            known = cell(e, e.explanation) if e and e.explanation else ""
            cells.append(known or (_time(one) if name == "time" else "–"))
        if set(cells) != {"–"}:
            made.append(ComparedLine(name=name, cells=cells))
    return made


def _time(one: Compared) -> str:
    """Where no parts of it are known."""
    return (
        f"{micros(one.estimate.time_us)} {error_bar(one.estimate.error)}"
        if one.estimate
        else one.outcome
    )


def _schedule(found: Sequence[Estimate | None]) -> Iterator[ComparedLine]:
    """Where the cycles of each final schedule go: issued, or stalled for what."""
    for part in PARTS:
        us = [e.explanation.part_us(part) if e and e.explanation else 0.0 for e in found]
        if any(us):
            cells = [share_text(t, e) if e and t else "–" for t, e in zip(us, found, strict=True)]
            yield ComparedLine(name=part, cells=cells)


def _said(found: Sequence[Compared]) -> list[str]:
    """The first against each of the others."""
    timed = [
        (one, NamedEstimate(name=one.name, estimate=one.estimate)) for one in found if one.estimate
    ]
    said = []
    for other, named in timed[1:]:
        first = timed[0][0].searched
        alike = first.id == other.searched.id
        if first.key.problem == other.searched.key.problem:
            said.append(why(compare(timed[0][1], named, alike=alike)))
    return said
