"""What to do next: what is broken, what is asked for and missing, what is out of date."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from weakref import WeakKeyDictionary

from autotune.domain.browsing import KeyMiss, NumberedCheck
from autotune.domain.codec import to_data
from autotune.domain.job import Job
from autotune.domain.key import Key
from autotune_service.pages.jobs import is_for
from autotune_service.pages.upgrades import row
from autotune_service.snapshot_cache import IndexedSnapshot

KINDS = ("broken", "missing", "slower", "stale")
MOST = 6
_MOST_OF_A_KIND = 2  # while there are others

_stale_of: "WeakKeyDictionary[IndexedSnapshot, list[tuple[Key, str]]]" = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """``kind`` is one of ``KINDS``; ``body`` what ``POST /v1/jobs`` takes, ``job`` the one
    that is open for it already."""

    kind: str
    key: Key
    link: str
    why: str
    body: str
    job: int | None = None


def next_steps(
    checks: Sequence[NumberedCheck],
    misses: Sequence[KeyMiss],
    stale: Sequence[tuple[Key, int]],
    snapshot: IndexedSnapshot,
    jobs: Sequence[Job],
) -> list[NextStep]:
    """The worst first, of each kind some."""
    kinds: list[list[NextStep]] = [
        list(_broken(checks, snapshot)),
        [_missing(miss) for miss in misses],
        [_stale(key, number) for key, number in stale],
    ]
    first = [one for kind in kinds for one in kind[:_MOST_OF_A_KIND]]
    rest = [one for kind in kinds for one in kind[_MOST_OF_A_KIND:]]
    shown = list(islice((*first, *rest), MOST))
    shown.sort(key=lambda one: KINDS.index(one.kind))
    return [_with_job(one, jobs) for one in shown]


def stale(snapshot: IndexedSnapshot) -> list[tuple[Key, str]]:
    """Records of an older source than the newest, where the newest has none: (key, the newest).
    Computed once for each snapshot."""
    if snapshot not in _stale_of:
        _stale_of[snapshot] = _find_stale(snapshot)
    return _stale_of[snapshot]


def _find_stale(snapshot: IndexedSnapshot) -> list[tuple[Key, str]]:
    newest_of, found = dict(iter(snapshot.index.kernels)), []  # the one described last
    for record in snapshot.index:
        key = record.key
        newest = newest_of.get(key.kernel, key.fingerprint)
        if newest != key.fingerprint:
            same = replace(key, fingerprint=newest)
            if snapshot.index.exact(same) is None:
                found.append((key, newest))
    return found


def _broken(checks: Iterable[NumberedCheck], snapshot: IndexedSnapshot) -> Iterable[NextStep]:
    for check in checks:
        shown = row(check, snapshot)
        if shown.job and check.check.verdict.wants_retuning:
            yield NextStep(
                kind="slower" if check.check.verdict.compiles else "broken",
                key=check.check.target,
                link=f"/keys/{check.key_id}",
                why=f"checked with {check.check.toolchain.jax}: {shown.finding}",
                body=shown.job,
            )


def _missing(one: KeyMiss) -> NextStep:
    times = "once" if one.miss.count == 1 else f"{one.miss.count:,} times"
    return NextStep(
        kind="missing",
        key=one.miss.key,
        link=f"/keys/{one.key_id}",
        why=f"asked for {times}, answered with: {one.miss.answer}",
        body=json.dumps({"miss": one.miss.number}),
    )


def _stale(key: Key, number: int) -> NextStep:
    asked = {name: to_data(key)[name] for name in ("kernel", "problem", "chip")}
    return NextStep(
        kind="stale",
        key=key,
        link=f"/keys/{number}",
        why=f"the kernel's source has changed since it was tuned ({key.fingerprint})",
        body=json.dumps(asked),
    )


def _with_job(one: NextStep, jobs: Sequence[Job]) -> NextStep:
    found = next((job.number for job in jobs if is_for(job, one.key)), None)
    return replace(one, job=found)
