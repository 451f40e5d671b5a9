"""What another toolchain, or another chip, does to what is published: the checks, worst first."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from autotune.domain.browsing import CheckCount, CheckFilter
from autotune.domain.codec import to_data
from autotune.domain.key import Chip, Toolchain
from autotune.domain.record import Check, CheckVerdict
from autotune_db.checks import CHECK_ORDER
from autotune_service.pages.call import PageCall
from autotune_service.pages.filters import PAGE_ROWS, Query, newest_first, pages
from autotune_service.snapshot_cache import IndexedSnapshot

_MOST_STEPS = 40


def show(call: PageCall) -> dict[str, Any]:
    """From a toolchain to another: counts by verdict, and what to change. Of each check also what
    has become of it since then, in words, and the request for a search there."""
    counts = call.browse.check_counts()
    only = check_filter(call.query, counts)
    matching = [count for count in counts if _admits(only, count)]
    shown = pages(call.query, sum(count.count for count in matching))
    order = call.query.order(CHECK_ORDER)
    checks = call.browse.worst_checks(only, shown.offset, PAGE_ROWS, order)
    return {
        "steps": steps(matching)[:_MOST_STEPS],
        "is_any": bool(counts),
        "starts": newest_first({count.made_with for count in counts}),
        "ends": newest_first({count.toolchain for count in counts}),
        "kernels": sorted({count.kernel for count in counts}),
        "chips": sorted({count.chip for count in counts}),
        "verdicts": list(CheckVerdict),
        "only": only,
        "order": order or "verdict",
        "pages": shown,
        "rows": [
            (numbered.key_id, numbered.number, numbered.check, *fate(numbered.check, call.snapshot))
            for numbered in checks
        ],
    }


class UpgradeStep(NamedTuple):
    """From a toolchain to another; ``chips``: from a chip to another, None on the same."""

    made_with: Toolchain
    toolchain: Toolchain
    chips: tuple[Chip, Chip] | None


def steps(counts: Sequence[CheckCount]) -> list[tuple[UpgradeStep, Counter[CheckVerdict]]]:
    """How many checks there are of each, by verdict. To the newest toolchain first."""
    by_step: dict[UpgradeStep, Counter[CheckVerdict]] = {}
    for c in counts:
        chips = None if c.made_on is c.chip else (c.made_on, c.chip)
        by_step.setdefault(UpgradeStep(c.made_with, c.toolchain, chips), Counter())[c.verdict] += (
            c.count
        )
    order = newest_first({t for step in by_step for t in (step.made_with, step.toolchain)})
    return sorted(
        by_step.items(),
        key=lambda item: (
            order.index(item[0].toolchain),
            order.index(item[0].made_with),
            item[0].chips or (),
        ),
    )


def fate(check: Check, snapshot: IndexedSnapshot) -> tuple[str, str]:
    """What has become of a check since it was made, in words, empty where nothing has; and the
    search that it asks for, as ``POST /v1/jobs`` takes it, empty where none is wanted."""
    record = snapshot.index.exact(check.key)
    if snapshot.index.exact(check.target) is not None:
        since = "published for it"
    elif record is None:
        since = "not published any more"
    else:
        since = "" if record.config == check.config else "another config is published by now"
    wanted = check.verdict.wants_retuning or check.chip is not check.key.chip
    return since, json.dumps(to_data(check.target)) if wanted and not since else ""


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
