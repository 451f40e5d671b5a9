"""The first page: what runs, how much faster tuning has made what is published, what is missing."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from autotune.answering.versions import versions_of
from autotune.domain.browsing import History, RunningSearch, TargetCount
from autotune.domain.chip import Chip
from autotune.domain.job import Job
from autotune.domain.problem import Problem
from autotune.domain.toolchain import Toolchain
from autotune.wording.units import ratio
from autotune_db.browse import SqlBrowse
from autotune_service.pages.filters import toolchain_name
from autotune_service.pages.gains import (
    DEFAULT,
    Dot,
    Gain,
    Scale,
    dots,
    gains,
    middle,
    over_time,
    scale,
    told,
)
from autotune_service.pages.jobs import is_for
from autotune_service.pages.render import kernel_path, link
from autotune_service.snapshot_cache import IndexedSnapshot, Published

MOST_TOOLCHAINS = 3  # beside the dots; others are a filter away
SILENT = timedelta(minutes=5)
"""A search that was not heard of for so long has died: a candidate, or a verification, may take
some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageCell:
    """Of one kernel on one chip with one toolchain."""

    searched: int
    published: int
    link: str

    @property
    def state(self) -> str:
        if not self.searched and not self.published:
            return "none"
        return "all" if self.published >= self.searched else "some" if self.published else "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipRow:
    """``said``: in words, what the dots show."""

    chip: Chip
    over_default: Sequence[Dot]
    over_xla: Sequence[Dot]
    said: str
    cells: Sequence[CoverageCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCard:
    """A kernel with a row for each chip. ``middle``: times the default, of which some are ``told``
    to be predicted."""

    name: str
    middle: float | None
    told: str
    rows: Sequence[ChipRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gained:
    """What all records of a snapshot have gained. ``lines``: how that grew, as paths."""

    each: Sequence[Gain]
    scale: Scale
    middle: float | None
    told: str
    lines: Mapping[str, str]


_gained: "WeakKeyDictionary[IndexedSnapshot, Gained]" = WeakKeyDictionary()


def gained(browse: SqlBrowse, snapshot: IndexedSnapshot) -> Gained:
    """Computed once for each snapshot. For a thread: all records are looked at."""
    if snapshot not in _gained:
        each = gains(browse, snapshot)
        _gained[snapshot] = Gained(
            each=each,
            scale=scale(each),
            middle=middle([one.over_default for one in each]),
            told=told(each),
            lines={
                "published": sparkline(counted([one.at for one in each])),
                "gain": sparkline(over_time(each)),
            },
        )
    return _gained[snapshot]


def cards(
    places: Sequence[TargetCount],
    published: "Counter[Published]",
    kernels: Sequence[str],
    all_gains: Sequence[Gain],
    shown: Sequence[Toolchain],
    on: Scale,
) -> list[KernelCard]:
    """Also of kernels that were described and never searched."""
    searched = Counter({(p.kernel, p.chip, p.toolchain): p.searched for p in places})
    there = {place[:2] for place in {*searched, *published} if place[2] in shown}
    by_place: dict[tuple[str, Chip], list[Gain]] = {}
    for all_gain in all_gains:
        by_place.setdefault((all_gain.key.kernel, all_gain.key.chip), []).append(all_gain)
    made = []
    for name in sorted({name for name, _ in there} | set(kernels)):
        chips = sorted(chip for kernel, chip in there if kernel == name)
        mine = [one for chip in chips for one in by_place.get((name, chip), ())]
        rows = [
            _row(name, chip, by_place.get((name, chip), ()), on, searched, published, shown)
            for chip in chips
        ]
        times = [one.over_default for one in mine]
        made.append(KernelCard(name=name, middle=middle(times), told=told(mine), rows=rows))
    return made


def _row(
    name: str,
    chip: Chip,
    mine: Sequence[Gain],
    on: Scale,
    searched: "Counter[Published]",
    published: "Counter[Published]",
    shown: Sequence[Toolchain],
) -> ChipRow:
    several = link(kernel_path(name), chip=chip.value)
    return ChipRow(
        chip=chip,
        over_default=dots(mine, on, lambda one: one.over_default, DEFAULT, several),
        over_xla=dots(mine, on, lambda one: one.over_xla, "plain XLA", several),
        said=_said(mine),
        cells=[
            _cell(searched[name, chip, one], published[name, chip, one], name, chip, one)
            for one in shown
        ],
    )


def _said(mine: Sequence[Gain]) -> str:
    if not mine:
        return "nothing is published"
    default, xla = (
        ratio(middle([getattr(one, name) for one in mine]), 1)
        for name in ("over_default", "over_xla")
    )
    times = f"{default} the default{told(mine)}, {xla} plain XLA"
    return f"{len(mine)} published; in the middle {times}"


def newest_first(toolchains: Collection[Toolchain]) -> list[Toolchain]:
    return sorted(toolchains, key=lambda one: (versions_of(one), one), reverse=True)


def _cell(
    searched: int, published: int, kernel: str, chip: Chip, toolchain: Toolchain
) -> CoverageCell:
    where = link(kernel_path(kernel), chip=chip.value, toolchain=toolchain_name(toolchain))
    return CoverageCell(searched=max(searched, published), published=published, link=where)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningWork:
    """What is being tuned now: a search, a job, or a search for a job."""

    name: str
    problem: Problem
    chip: Chip
    link: str
    done: int
    goal: int
    note: str
    best_us: float | None
    default_us: float | None
    left_s: float | None
    job: int | None


def activities(running: Sequence[RunningSearch], jobs: Sequence[Job]) -> list[RunningWork]:
    """``jobs``: those that run. One whose search is told of by itself is not told twice."""
    found, left = [], list(jobs)
    for one in running:
        key = one.searched.key
        job = next((job for job in left if is_for(job, key)), None)
        if job is not None:
            left.remove(job)
        found.append(_of_search(one, job))
    return [*found, *map(_of_job, left)]


def _of_search(one: RunningSearch, job: Job | None) -> RunningWork:
    key, progress = one.searched.key, one.status.progress
    return RunningWork(
        name=key.kernel,
        problem=key.problem,
        chip=key.chip,
        link=f"/keys/{one.searched.id}",
        done=progress.done,
        goal=progress.goal,
        note=progress.note,
        best_us=one.searched.best_us,
        default_us=one.searched.default_us,
        left_s=one.left_s,
        job=job.number if job else None,
    )


def _of_job(job: Job) -> RunningWork:
    asked, progress = job.request, job.progress
    return RunningWork(
        name=asked.kernel,
        problem=asked.problem,
        chip=asked.chip,
        link=f"/jobs/{job.number}",
        done=progress.done,
        goal=job.goal,
        note=progress.note or f"{job.worker} has it",
        best_us=progress.best_us,
        default_us=progress.default_us,
        left_s=None,
        job=job.number,
    )


def sparkline(points: Sequence[tuple[datetime, float]]) -> str:
    """The path of a step line in a box of 100 by 24, from the first moment to the last."""
    span = (points[-1][0] - points[0][0]).total_seconds() if points else 0.0
    if not span:  # nothing has changed: a line would stand on its end
        return ""
    first = points[0][0]
    low, high = min(v for _, v in points), max(v for _, v in points)
    height = (high - low) or 1.0
    step = max(1, len(points) // 100)
    kept = [*points[::step], points[-1]]
    places = [
        (100 * (at - first).total_seconds() / span, 22 - 20 * (value - low) / height)
        for at, value in kept
    ]
    return f"M0 {places[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in places)


def history_lines(history: History) -> dict[str, str]:
    """How what is missed, and what is broken, has grown."""
    found = {"missed": history.missed_at, "broken": history.broken_at}
    return {name: sparkline(counted(moments)) for name, moments in found.items()}


def counted(moments: Sequence[datetime]) -> list[tuple[datetime, float]]:
    """How many there were by then."""
    return [(at, float(number)) for number, at in enumerate(sorted(moments), 1)]
