"""What another toolchain, or another chip, does to what is published: the checks, worst first.

And what to do next: what is broken, what is asked for and missing, what is out of date.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.domain.browsing import CheckCount, CheckFilter, KeyMiss, NumberedCheck
from autotune.domain.codec import to_data
from autotune.domain.job import Job
from autotune.domain.key import Key, Toolchain
from autotune.domain.record import Check, CheckVerdict
from autotune.wording.checks import finding
from autotune_db.browse import SqlBrowse
from autotune_service.pages.call import PageCall, once_for_each_snapshot
from autotune_service.pages.filters import PAGE_ROWS, Query, newest_first, pages
from autotune_service.pages.jobs import job_for
from autotune_service.snapshot_cache import IndexedSnapshot

_MOST_STEPS = 40
_COLOURS = {
    CheckVerdict.WRONG: "wrong",
    CheckVerdict.BROKEN: "failed",
    CheckVerdict.NEEDS_LIMIT: "vmem",
    CheckVerdict.SLOWER: "wrong",
    CheckVerdict.DEFAULT_WINS: "wrong",
    CheckVerdict.NOT_CHECKED: "untimed",
    CheckVerdict.FASTER: "good",
    CheckVerdict.SAME: "good",
}


def show(call: PageCall) -> dict[str, Any]:
    """From a toolchain to another: counts by verdict, and what to change. Of each check also what
    has become of it since then, in words, and the request for a search there."""
    counts = call.browse.check_counts()
    only = check_filter(call.query, counts)
    matching = [count for count in counts if _admits(only, count)]
    shown = pages(call.query, sum(count.count for count in matching))
    checks = call.browse.worst_checks(only, shown.offset, PAGE_ROWS)
    return {
        "steps": steps(matching)[:_MOST_STEPS],
        "is_any": bool(counts),
        "starts": newest_first({count.made_with for count in counts}),
        "ends": newest_first({count.toolchain for count in counts}),
        "kernels": sorted({count.kernel for count in counts}),
        "chips": sorted({count.chip for count in counts}),
        "verdicts": list(CheckVerdict),
        "colours": _COLOURS,
        "only": only,
        "pages": shown,
        "rows": [
            (numbered.key_id, numbered.check, *fate(numbered.check, call.snapshot))
            for numbered in checks
        ],
    }


def steps(
    counts: Sequence[CheckCount],
) -> list[tuple[Toolchain, Toolchain, Counter[CheckVerdict]]]:
    """From one toolchain to another, or to other chips: how many checks by verdict. To the newest
    toolchain first."""
    by_step: dict[tuple[Toolchain, Toolchain], Counter[CheckVerdict]] = {}
    for count in counts:
        verdicts = by_step.setdefault((count.made_with, count.toolchain), Counter())
        verdicts[count.verdict] += count.count
    order = newest_first({toolchain for step in by_step for toolchain in step})
    ordered = sorted(by_step, key=lambda step: (order.index(step[1]), order.index(step[0])))
    return [(*step, by_step[step]) for step in ordered]


def fate(check: Check, snapshot: IndexedSnapshot) -> tuple[str, str]:
    """What has become of a check since it was made, in words, empty where nothing has; and the
    search that it asks for, as ``POST /v1/jobs`` takes it, empty where none is wanted."""
    since = _since(check, snapshot)
    wanted = check.verdict.wants_retuning or check.chip is not check.key.chip
    return since, json.dumps(to_data(check.target)) if wanted and not since else ""


def _since(check: Check, snapshot: IndexedSnapshot) -> str:
    if snapshot.index.exact(check.target) is not None:
        return "published for it"
    record = snapshot.index.exact(check.key)
    if record is None:
        return "not published any more"
    return "" if record.config == check.config else "another config is published by now"


def check_filter(query: Query, counts: Sequence[CheckCount]) -> CheckFilter:
    verdict = query.choice("verdict", [verdict.value for verdict in CheckVerdict])
    return CheckFilter(
        made_with=query.toolchain([count.made_with for count in counts], "from"),
        toolchain=query.toolchain([count.toolchain for count in counts], "to"),
        kernel=query.choice("kernel", sorted({count.kernel for count in counts})),
        chip=query.chip(sorted({count.chip for count in counts})),
        verdict=CheckVerdict(verdict) if verdict else None,
    )


def _admits(only: CheckFilter, count: CheckCount) -> bool:
    names = ("made_with", "toolchain", "kernel", "chip", "verdict")
    return all(getattr(only, name) in (None, getattr(count, name)) for name in names)


KINDS = ("broken", "missing", "slower", "stale")
MOST = 6
_MOST_OF_A_KIND = 2  # while there are others


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """``kind`` is one of ``KINDS``; ``body`` what ``POST /v1/jobs`` takes, ``job`` the one
    that is open for it already."""

    kind: str
    key: Key
    link: str
    why: str
    body: str
    job: Job | None = None


def next_steps(call: PageCall, jobs: Sequence[Job]) -> list[NextStep]:
    """The worst first, of each kind a few. ``jobs``: those that are open."""
    browse, snapshot = call.browse, call.snapshot
    kinds: list[list[NextStep]] = [
        list(_broken(browse.worst_checks(CheckFilter(), 0, MOST * 2), snapshot)),
        list(map(_missing, browse.missed_keys(0, MOST))),
        _stale(snapshot, browse),
    ]
    first = [step for kind in kinds for step in kind[:_MOST_OF_A_KIND]]
    rest = [step for kind in kinds for step in kind[_MOST_OF_A_KIND:]]
    shown = sorted([*first, *rest][:MOST], key=lambda step: KINDS.index(step.kind))
    return [replace(step, job=job_for(step.key, jobs)) for step in shown]


def _broken(checks: Iterable[NumberedCheck], snapshot: IndexedSnapshot) -> Iterable[NextStep]:
    for numbered in checks:
        check = numbered.check
        _, job = fate(check, snapshot)
        if job and check.verdict.wants_retuning:
            yield NextStep(
                kind="slower" if check.verdict.compiles else "broken",
                key=check.target,
                link=f"/keys/{numbered.key_id}",
                why=f"checked with {check.toolchain.label}: {finding(check)}",
                body=job,
            )


def _missing(missed: KeyMiss) -> NextStep:
    miss = missed.miss
    times = "once" if miss.count == 1 else f"{miss.count:,} times"
    return NextStep(
        kind="missing",
        key=miss.key,
        link=f"/keys/{missed.key_id}",
        why=f"asked for {times}, answered with: {miss.answer}",
        body=json.dumps({"miss": miss.number}),
    )


def _stale(snapshot: IndexedSnapshot, browse: SqlBrowse) -> list[NextStep]:
    """Records of an older source than the newest, where the newest has none."""
    keys = stale(snapshot)[:MOST]
    numbers = browse.numbers(keys)
    return [
        NextStep(
            kind="stale",
            key=key,
            link=f"/keys/{numbers[key]}",
            why=f"the kernel's source has changed since it was tuned ({key.fingerprint})",
            body=json.dumps({name: to_data(key)[name] for name in ("kernel", "problem", "chip")}),
        )
        for key in keys
        if key in numbers
    ]


@once_for_each_snapshot
def stale(snapshot: IndexedSnapshot) -> list[Key]:
    """All keys of such records."""
    newest_of = dict(iter(snapshot.index.kernels))  # the one described last
    keys = []
    for record in snapshot.index:
        key = record.key
        newest = newest_of.get(key.kernel, key.fingerprint)
        if newest == key.fingerprint:
            continue
        if snapshot.index.exact(replace(key, fingerprint=newest)) is None:
            keys.append(key)
    return keys
