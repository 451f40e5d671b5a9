"""The first page: what runs, how much faster tuning has made what is published, what is missing.

Of each published problem: how many times as fast it is as the default and as plain XLA.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from autotune.domain.browsing import SILENT, RunningSearch
from autotune.domain.job import Job, State
from autotune_db.browse import SqlBrowse
from autotune_service.pages.call import PageCall, once_for_each_snapshot
from autotune_service.pages.filters import newest_first
from autotune_service.pages.jobs import MOST_JOBS, job_for
from autotune_service.pages.lanes import Lanes, cards, gains, lanes_of
from autotune_service.pages.next_steps import next_steps
from autotune_service.pages.problems import rows
from autotune_service.pages.workloads import lines, model_times
from autotune_service.snapshot_cache import IndexedSnapshot

_LATEST = 8
_MOST_MODELS = 5
_MOST_TOOLCHAINS = 3  # beside the dots; others are a filter away


def show(call: PageCall) -> dict[str, Any]:
    """What runs, what tuning has gained, what is missing."""
    browse, snapshot = call.browse, call.snapshot
    published = snapshot.places
    targets = browse.targets()
    searched = Counter({(t.kernel, t.chip, t.toolchain): t.searched for t in targets}) | published
    toolchains = newest_first({toolchain for *_, toolchain in searched})
    only = call.query.toolchain(toolchains)
    shown = [only] if only else toolchains[:_MOST_TOOLCHAINS]
    everything = drawn = _all_lanes(snapshot, browse)
    if only:
        of_it = [g for g in gains(snapshot, browse).values() if g.key.toolchain == only]
        drawn = lanes_of(of_it, everything.scale)
    described = [] if only else [spec.name for spec in call.store.kernels()]
    return {
        "toolchains": toolchains,
        "shown": shown,
        "only": only,
        "cards": cards(searched, published, described, drawn, shown),
        "models": [
            (name, chip, toolchain, sums)
            for name, _ in call.store.workloads.names()[:_MOST_MODELS]
            if (tuned := call.store.workloads.find(name))
            for chip, toolchain, _, sums in model_times(lines(tuned[0].entries, call.snapshot))
        ],
        "latest": rows(call, browse.latest(_LATEST)),
        "scale": everything.scale,
        **everything.average,
        "steps": next_steps(call, browse.open_jobs(MOST_JOBS)),
        "snapshot": snapshot,
        "searched": sum(target.searched for target in targets),
        "claimed": call.store.count_claims(),
        "missing": browse.count_misses(),
        "broken": browse.count_broken(),
        **running(call),
    }


@once_for_each_snapshot
def _all_lanes(snapshot: IndexedSnapshot, browse: SqlBrowse) -> Lanes:
    return lanes_of(list(gains(snapshot, browse).values()))


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
