"""What to do next: what is broken, what is asked for and missing, what is out of date."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from autotune.domain.browsing import CheckFilter, KeyMiss, NumberedCheck
from autotune.domain.codec import to_data
from autotune.domain.job import Job
from autotune.domain.key import Key
from autotune.wording.checks import finding
from autotune_db.browse import SqlBrowse
from autotune_service.pages.call import PageCall, once_for_each_snapshot
from autotune_service.pages.jobs import job_for
from autotune_service.pages.upgrades import fate
from autotune_service.snapshot_cache import IndexedSnapshot

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
