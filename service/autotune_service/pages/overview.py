"""The first page: what runs, how much faster tuning has made what is published, what is missing.

Of each published problem: how many times as fast it is as the default and as plain XLA.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import exp, log
from typing import Any

from autotune.domain.browsing import SILENT, History, RunningSearch
from autotune.domain.job import Job, State
from autotune.domain.key import Chip, Toolchain
from autotune.domain.workload import WeightedTimes
from autotune_db.browse import SqlBrowse
from autotune_service.pages.call import PageCall, once_for_each_snapshot
from autotune_service.pages.filters import newest_first
from autotune_service.pages.gains import Gain, gains
from autotune_service.pages.jobs import MOST_JOBS, job_for
from autotune_service.pages.lanes import PublishedShare, Scale, cards, middle, predicted, scale_of
from autotune_service.pages.next_steps import next_steps
from autotune_service.pages.problems import rows
from autotune_service.pages.workloads import lines, model_times
from autotune_service.snapshot_cache import IndexedSnapshot

Moments = Sequence[tuple[datetime, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gained:
    """What all records of a snapshot have gained, the oldest first. ``lines``: how that grew, as
    paths."""

    each: Sequence[Gain]
    scale: Scale
    middle: float | None
    predicted: str
    lines: Mapping[str, str]


@once_for_each_snapshot
def gained(snapshot: IndexedSnapshot, browse: SqlBrowse) -> Gained:
    each = list(gains(snapshot, browse).values())
    published = sparkline(counted([gain.at for gain in each]))
    return Gained(
        each=each,
        scale=scale_of(each),
        middle=middle([gain.over_default for gain in each]),
        predicted=predicted(each),
        lines={"published": published, "gain": sparkline(_over_time(each))},
    )


def _over_time(gains: Sequence[Gain]) -> Moments:
    """The middle of what had been published by then."""
    points: list[tuple[datetime, float]] = []
    total = 0.0
    for gain in gains:
        if gain.over_default:
            total += log(gain.over_default)
            points.append((gain.at, exp(total / (len(points) + 1))))
    return points


def history_lines(history: History) -> dict[str, str]:
    """How what is missed, and what is broken, has grown."""
    moments = {"missed": history.missed_at, "broken": history.broken_at}
    return {name: sparkline(counted(at)) for name, at in moments.items()}


def counted(moments: Sequence[datetime]) -> Moments:
    """How many there were by then."""
    return [(at, float(number)) for number, at in enumerate(sorted(moments), 1)]


def sparkline(points: Moments) -> str:
    """The path of a step line in a box of 100 by 24, from the first moment to the last."""
    first = points[0][0] if points else None
    span_s = (points[-1][0] - first).total_seconds() if first else 0.0
    if not span_s or first is None:  # nothing has changed: a line would stand on its end
        return ""
    low, high = min(v for _, v in points), max(v for _, v in points)
    height = (high - low) or 1.0
    step = max(1, len(points) // 100)
    places = [
        (100 * (at - first).total_seconds() / span_s, 22 - 20 * (value - low) / height)
        for at, value in [*points[::step], points[-1]]
    ]
    return f"M0 {places[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in places)


_LATEST = 8
_MOST_MODELS = 5
_MOST_TOOLCHAINS = 3  # beside the dots; others are a filter away


def show(call: PageCall) -> dict[str, Any]:
    """What runs, what tuning has gained, what is missing."""
    browse, snapshot = call.browse, call.snapshot
    coverage = PublishedShare(
        searched=Counter({(p.kernel, p.chip, p.toolchain): p.searched for p in browse.targets()}),
        published=snapshot.places,
    )
    toolchains = newest_first({toolchain for *_, toolchain in coverage.places})
    only = call.query.toolchain(toolchains)
    shown = [only] if only else toolchains[:_MOST_TOOLCHAINS]
    tuned = gained(snapshot, browse)
    described = [] if only else [spec.name for spec in call.store.kernels()]
    history = browse.history()
    return {
        "toolchains": toolchains,
        "shown": shown,
        "only": only,
        "cards": cards(
            coverage,
            described,
            [gain for gain in tuned.each if only in (None, gain.key.toolchain)],
            shown,
            tuned.scale,
        ),
        "models": _models(call),
        "latest": rows(call, browse.latest(_LATEST)),
        "gained": tuned,
        "steps": next_steps(call, browse.open_jobs(MOST_JOBS)),
        "snapshot": snapshot,
        "searched": coverage.searched.total(),
        "claimed": call.store.count_claims(),
        "history": history,
        "lines": {**tuned.lines, **history_lines(history)},
        **running(call),
    }


def _models(call: PageCall) -> list[tuple[str, Chip, Toolchain, WeightedTimes]]:
    """The time of all kernels of a step, before and after, of the models tuned last."""
    return [
        (name, chip, toolchain, sums)
        for name, _ in call.store.workloads.names()[:_MOST_MODELS]
        if (tuned := call.store.workloads.find(name))
        for chip, toolchain, _, sums in model_times(lines(tuned[0].entries, call.snapshot))
    ]


def running(call: PageCall) -> dict[str, Any]:
    """What is being tuned now. An open overview asks for that section alone, again and again."""
    searches = call.browse.running(datetime.now(UTC) - SILENT)
    jobs = call.store.jobs.list(State.RUNNING, MOST_JOBS)
    queued = call.store.jobs.counts().get(State.QUEUED, 0)
    return {"running": _activities(searches, jobs), "queued": queued}


def _activities(searches: Sequence[RunningSearch], jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Searches, jobs, and searches for a job. A job whose search is shown is not shown twice."""
    shown, left = [], list(jobs)
    for search in searches:
        job = job_for(search.searched.key, left)
        if job is not None:
            left.remove(job)
        shown.append(_of_search(search, job))
    return [*shown, *map(_of_job, left)]


def _of_search(search: RunningSearch, job: Job | None) -> dict[str, Any]:
    """The best time is that of the trials, which is never older than what the search said."""
    searched, progress = search.searched, search.status.progress
    return {
        "wanted": searched.key,
        "link": f"/keys/{searched.id}",
        "progress": replace(progress, best_us=searched.best_us, default_us=searched.default_us),
        "left_s": search.left_s,
        "job": job and job.number,
    }


def _of_job(job: Job) -> dict[str, Any]:
    note = job.progress.note or f"{job.worker} has it"
    return {
        "wanted": job.request,
        "link": f"/jobs/{job.number}",
        "progress": replace(job.progress, goal=job.goal, note=note),
        "left_s": None,
        "job": job.number,
    }
