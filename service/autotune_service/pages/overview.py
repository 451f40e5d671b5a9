"""The first page: what runs, how much faster tuning has made what is published, what is missing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from autotune.domain.browsing import RunningSearch
from autotune.domain.job import Job, State
from autotune.domain.key import Chip, Toolchain
from autotune.wording.units import ratio
from autotune_service.pages.call import PageCall
from autotune_service.pages.filters import newest_first, toolchain_name
from autotune_service.pages.gains import (
    DEFAULT,
    Gain,
    Scale,
    dots,
    gained,
    history_lines,
    middle,
    predicted,
)
from autotune_service.pages.jobs import MOST_JOBS, job_for
from autotune_service.pages.next_steps import next_steps
from autotune_service.pages.problems import rows
from autotune_service.pages.render import kernel_path, link
from autotune_service.snapshot_cache import Published

_LATEST = 8
_MOST_TOOLCHAINS = 3  # beside the dots; others are a filter away
SILENT = timedelta(minutes=5)
"""A search that was not heard of for so long has died: a candidate, or a verification, may take
a few."""


def show(call: PageCall) -> dict[str, Any]:
    """What runs, what tuning has gained, what is missing."""
    browse, snapshot = call.browse, call.snapshot
    coverage = _Coverage(
        searched=Counter({(p.kernel, p.chip, p.toolchain): p.searched for p in browse.targets()}),
        published=snapshot.places,
    )
    toolchains = newest_first({toolchain for *_, toolchain in coverage.places})
    only = call.query.toolchain(toolchains)
    shown = [only] if only else toolchains[:_MOST_TOOLCHAINS]
    gains = gained(snapshot, browse)
    described = [] if only else [spec.name for spec in call.store.kernels()]
    history = browse.history()
    return {
        "toolchains": toolchains,
        "shown": shown,
        "only": only,
        "cards": _cards(
            coverage,
            described,
            [gain for gain in gains.each if only in (None, gain.key.toolchain)],
            shown,
            gains.scale,
        ),
        "latest": rows(call, browse.latest(_LATEST)),
        "gained": gains,
        "steps": next_steps(call, browse.open_jobs(MOST_JOBS)),
        "snapshot": snapshot,
        "searched": coverage.searched.total(),
        "claimed": call.store.count_claims(),
        "history": history,
        "lines": {**gains.lines, **history_lines(history)},
        **running(call),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Coverage:
    """How many problems were searched, and are published, at each place."""

    searched: "Counter[Published]"
    published: "Counter[Published]"

    @property
    def places(self) -> set[Published]:
        return {*self.searched, *self.published}

    def cell(self, kernel: str, chip: Chip, toolchain: Toolchain) -> dict[str, Any]:
        place = kernel, chip, toolchain
        published = self.published[place]
        searched = max(self.searched[place], published)
        state = "all" if published == searched else "some" if published else "open"
        where = link(kernel_path(kernel), chip=chip.value, toolchain=toolchain_name(toolchain))
        return {
            "searched": searched,
            "published": published,
            "link": where,
            "state": state if searched else "none",
        }


def _cards(
    coverage: _Coverage,
    described: Sequence[str],
    gains: Sequence[Gain],
    shown: Sequence[Toolchain],
    scale: Scale,
) -> list[dict[str, Any]]:
    """A kernel with a row for each chip; also those that were described and never searched."""
    there = {place[:2] for place in coverage.places if place[2] in shown}
    by_place: dict[tuple[str, Chip], list[Gain]] = {}
    for gain in gains:
        by_place.setdefault((gain.key.kernel, gain.key.chip), []).append(gain)
    cards = []
    for name in sorted({name for name, _ in there} | set(described)):
        chips = sorted(chip for kernel, chip in there if kernel == name)
        of_kernel = [gain for chip in chips for gain in by_place.get((name, chip), ())]
        card = {
            "name": name,
            "middle": middle([gain.over_default for gain in of_kernel]),
            "predicted": predicted(of_kernel),
            "rows": [
                {
                    **_lane(name, chip, by_place.get((name, chip), ()), scale),
                    "cells": [coverage.cell(name, chip, toolchain) for toolchain in shown],
                }
                for chip in chips
            ],
        }
        cards.append(card)
    return cards


def _lane(kernel: str, chip: Chip, gains: Sequence[Gain], scale: Scale) -> dict[str, Any]:
    """The dots of a chip, and in words what they show."""
    several = link(kernel_path(kernel), chip=chip.value)
    return {
        "chip": chip,
        "over_default": dots(gains, scale, lambda gain: gain.over_default, DEFAULT, several),
        "over_xla": dots(gains, scale, lambda gain: gain.over_xla, "plain XLA", several),
        "in_words": _in_words(gains),
    }


def _in_words(gains: Sequence[Gain]) -> str:
    if not gains:
        return "nothing is published"
    default = ratio(middle([gain.over_default for gain in gains]), 1)
    xla = ratio(middle([gain.over_xla for gain in gains]), 1)
    times = f"{default} the default{predicted(gains)}, {xla} plain XLA"
    return f"{len(gains)} published; in the middle {times}"


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
