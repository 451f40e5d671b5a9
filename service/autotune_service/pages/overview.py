"""The first page: what runs, how much faster tuning has made what is published, what is missing.

Of each published problem: how many times as fast it is as the default and as plain XLA.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import exp, log
from statistics import median
from typing import Any

from autotune.domain.browsing import SILENT, History, RunningSearch
from autotune.domain.job import Job, State
from autotune.domain.key import Chip, Toolchain
from autotune.domain.workload import WeightedTimes
from autotune.wording.units import ratio
from autotune_db.browse import SqlBrowse
from autotune_service.pages.call import PageCall, once_for_each_snapshot
from autotune_service.pages.filters import newest_first, toolchain_name
from autotune_service.pages.gains import Gain, gains
from autotune_service.pages.jobs import MOST_JOBS, job_for
from autotune_service.pages.next_steps import next_steps
from autotune_service.pages.problems import rows
from autotune_service.pages.render import kernel_path, link
from autotune_service.pages.workloads import lines, model_times
from autotune_service.snapshot_cache import IndexedSnapshot, Published

DEFAULT = "its default"
_STEPS = 70  # places of a lane: dots that fall on one of them are one dot
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000)

Moments = Sequence[tuple[datetime, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """``x`` in percent of the lane; ``count``: how many problems stand there."""

    x: float
    count: int
    link: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Logarithmic, from ``low`` to ``high`` times as fast; 1 is inside."""

    low: float
    high: float

    def place(self, times: float) -> float:
        """In percent, between the edges."""
        share = log(times / self.low) / log(self.high / self.low)
        return 100 * min(1.0, max(0.0, share))

    @property
    def ticks(self) -> list[tuple[float, str]]:
        inside = [tick for tick in _TICKS if self.low < tick < self.high]
        step = 1 + len(inside) // 5
        shown = inside[inside.index(1) % step :: step]
        return [(self.place(tick), f"{tick:g}×") for tick in shown]


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
        scale=_scale(each),
        middle=middle([gain.over_default for gain in each]),
        predicted=predicted(each),
        lines={"published": published, "gain": sparkline(_over_time(each))},
    )


def _scale(gains: Sequence[Gain]) -> Scale:
    times = [t for gain in gains for t in (gain.over_default, gain.over_xla)]
    drawn = [t for t in times if t and 1e-3 < t < 1e6]
    return Scale(low=min([0.5, *drawn]) / 1.3, high=max([2.0, *drawn]) * 1.3)


def dots(
    gains: Sequence[Gain],
    scale: Scale,
    times_of: Callable[[Gain], float | None],
    what: str,
    several: str,
) -> list[Dot]:
    """``several``: where those of a place that has more than one are listed."""
    places: dict[int, list[tuple[float, Gain]]] = {}
    for gain in gains:
        if times := times_of(gain):
            place = round(scale.place(times) / 100 * _STEPS)
            places.setdefault(place, []).append((times, gain))
    return [_dot(place, there, what, several) for place, there in sorted(places.items())]


def _dot(place: int, there: Sequence[tuple[float, Gain]], what: str, several: str) -> Dot:
    times, first = there[0]
    text = f"{first.key.problem}, {first.key.toolchain.label}"
    if len(there) > 1:
        times, text = median(t for t, _ in there), f"{len(there)} problems"
    of_default = predicted([gain for _, gain in there]) if what == DEFAULT else ""
    return Dot(
        x=round(100 * place / _STEPS, 1),
        count=len(there),
        link=f"/keys/{first.key_id}" if len(there) == 1 else several,
        text=f"{text}: {ratio(times, 1)} {what}{of_default}",
    )


def predicted(gains: Sequence[Gain]) -> str:
    """Of how many the default was not compiled; empty where that is none."""
    count = sum(gain.is_predicted for gain in gains)
    return f" ({count} predicted)" if count and len(gains) > 1 else " (predicted)" * bool(count)


def middle(times: Sequence[float | None]) -> float | None:
    """The geometric mean of what is known: twice and half as fast make no difference."""
    known = [log(time) for time in times if time]
    return exp(sum(known) / len(known)) if known else None


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
    coverage = _Coverage(
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
        "cards": _cards(
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
    return f"{len(gains)} published; on average {times}"


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
