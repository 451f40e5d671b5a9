"""What another toolchain, or another chip, does to what is published: the checks, worst first."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from autotune.domain.browsing import CheckCount, CheckFilter, NumberedCheck
from autotune.domain.check import Check
from autotune.domain.codec import to_data
from autotune.domain.record_check import CheckVerdict
from autotune.domain.toolchain import Toolchain
from autotune.wording.checks import action, finding
from autotune_service.dependencies import ask, snapshots_of, store
from autotune_service.pages.filters import PAGE_ROWS, Query, pages, query_of, toolchain_name
from autotune_service.pages.overview import newest_first
from autotune_service.pages.render import page
from autotune_service.snapshot_cache import IndexedSnapshot

upgrades = APIRouter(include_in_schema=False)

_MOST_STEPS = 40
_COLOURS = {
    CheckVerdict.BROKEN: "failed",
    CheckVerdict.NEEDS_LIMIT: "vmem",
    CheckVerdict.SLOWER: "wrong",
    CheckVerdict.DEFAULT_WINS: "wrong",
    CheckVerdict.NOT_CHECKED: "untimed",
    CheckVerdict.FASTER: "good",
    CheckVerdict.SAME: "good",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeStep:
    """From one toolchain to another, or to other chips: how many checks by verdict."""

    made_with: Toolchain
    toolchain: Toolchain
    counts: Counter[CheckVerdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeRow:
    """One check. ``since``: what has become of it since then, in words; ``job``: the request for a
    search there as JSON, empty where none is wanted any more."""

    key_id: int
    check: Check
    colour: str
    finding: str
    action: str
    since: str
    job: str


@upgrades.get("/upgrades")
async def show(request: Request) -> Response:
    """From a toolchain to another: counts by verdict, and what to change."""
    query, browse = query_of(request), store(request).browse
    counts = await ask(request, browse.check_counts)
    only = check_filter(query, counts)
    matching = [count for count in counts if _admits(only, count)]
    shown = pages(query, sum(one.count for one in matching))
    found = await ask(request, browse.worst_checks, only, shown.offset, PAGE_ROWS)
    return await page(
        request,
        "upgrades.html",
        query=query.done(),
        steps=steps(matching)[:_MOST_STEPS],
        is_any=bool(counts),
        starts=newest_first({count.made_with for count in counts}),
        ends=newest_first({count.toolchain for count in counts}),
        kernels=sorted({count.kernel for count in counts}),
        chips=sorted({count.chip for count in counts}),
        verdicts=list(CheckVerdict),
        colours=_COLOURS,
        only=only,
        pages=shown,
        rows=[row(one, snapshots_of(request).current) for one in found],
    )


def steps(counts: Sequence[CheckCount]) -> list[UpgradeStep]:
    """To the newest toolchain first."""
    found: dict[tuple[Toolchain, Toolchain], Counter[CheckVerdict]] = {}
    for count in counts:
        found.setdefault((count.made_with, count.toolchain), Counter())[count.verdict] += (
            count.count
        )
    order = newest_first({toolchain for pair in found for toolchain in pair})
    ordered = sorted(found, key=lambda pair: (order.index(pair[1]), order.index(pair[0])))
    return [
        UpgradeStep(made_with=old, toolchain=new, counts=found[old, new]) for old, new in ordered
    ]


def row(one: NumberedCheck, snapshot: IndexedSnapshot) -> UpgradeRow:
    check = one.check
    since = _since(check, snapshot)
    wanted = check.verdict.wants_retuning or check.chip is not check.key.chip
    return UpgradeRow(
        key_id=one.key_id,
        check=check,
        colour=_COLOURS[check.verdict],
        finding=finding(check),
        action=action(check),
        since=since,
        job=_job(check) if wanted and not since else "",
    )


def _since(check: Check, snapshot: IndexedSnapshot) -> str:
    if snapshot.index.exact(check.target) is not None:
        return "published for it"
    record = snapshot.index.exact(check.key)
    if record is None:
        return "not published any more"
    return "" if record.config == check.config else "another config is published by now"


def _job(check: Check) -> str:
    """As ``POST /v1/jobs`` takes it."""
    asked = to_data(check.target)
    return json.dumps(asked)


def check_filter(query: Query, counts: Sequence[CheckCount]) -> CheckFilter:
    made_with = {toolchain_name(count.made_with): count.made_with for count in counts}
    toolchains = {toolchain_name(count.toolchain): count.toolchain for count in counts}
    verdict = query.choice("verdict", [one.value for one in CheckVerdict])
    return CheckFilter(
        made_with=made_with.get(query.choice("from", list(made_with)) or ""),
        toolchain=toolchains.get(query.choice("to", list(toolchains)) or ""),
        kernel=query.choice("kernel", sorted({count.kernel for count in counts})),
        chip=query.chip(sorted({count.chip for count in counts})),
        verdict=CheckVerdict(verdict) if verdict else None,
    )


def _admits(only: CheckFilter, one: CheckCount) -> bool:
    names = ("made_with", "toolchain", "kernel", "chip", "verdict")
    return all(getattr(only, name) in (None, getattr(one, name)) for name in names)
