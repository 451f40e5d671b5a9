"""Workloads: what was tuned together, and what is served for it now."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.domain.key import Chip, Toolchain
from autotune.domain.record import Record
from autotune.domain.step import StepKind, TunedStep
from autotune.domain.workload import TunedEntry, WeightedTimes, weighted_times
from autotune_service.errors import HttpError
from autotune_service.pages.call import PageCall
from autotune_service.pages.filters import PAGE_ROWS, by_order, pages
from autotune_service.pages.next_steps import WORTH, bounds_us
from autotune_service.pages.speed import PartBar, bar, over
from autotune_service.pages.states import states_of
from autotune_service.snapshot_cache import IndexedSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLine:
    """A problem of a workload."""

    entry: TunedEntry
    record: Record | None

    @property
    def after_us(self) -> float | None:
        return self.record.estimate.time_us if self.record else None

    @property
    def in_all_us(self) -> float:
        """In a step of the model, as it runs now."""
        return self.entry.weight * (self.after_us or self.entry.before_us or 0.0)


_FIGURES: dict[str, Callable[[WorkloadLine], float | None]] = {
    "runs": lambda line: line.entry.weight,
    "before": lambda line: line.entry.before_us,
    "after": lambda line: line.after_us,
    "times": lambda line: over(line.entry.before_us, line.after_us),
    "share": lambda line: line.in_all_us,
}


Place = tuple[Chip, Toolchain]
_COLUMNS = ("toolchain", "runs", "config")
_HIDDEN = ("config",)
_MOST_SHARES = 7  # there are eight colours
_MOST_LINES = 8
_NEXT = {
    StepKind.KERNEL: "more trials, or what advise says of its source",
    StepKind.PRODUCT: "its dtype, its sharding, or options of the compiler",
    StepKind.ELEMENTWISE: "a kernel that does it on the way, or less that is recomputed",
    StepKind.COPY: "the layout that its reader asks for",
    StepKind.COLLECTIVE: "another sharding, or options that hide it",
    StepKind.HOST: "less that is offloaded",
    StepKind.START: "",
}


def show(call: PageCall) -> dict[str, Any]:
    """All that were tuned into this database."""
    return {"workloads": call.store.workloads.names()}


def show_one(call: PageCall) -> dict[str, Any]:
    """One: before, after and evidence of each problem, and the time of all of them by chip."""
    name = call.path["name"]
    workload = call.store.workloads.find(name)
    if workload is None:
        raise HttpError(404, "unknown_workload", f"There is no workload {name[:80]}.")
    tuned, at = workload
    order = call.query.order(_FIGURES)
    known = lines(tuned.entries, call.snapshot)
    if order:
        known = by_order(known, _FIGURES[order.removeprefix("-")], order)
    shown = pages(call.query, len(known))
    rows = known[shown.offset :][:PAGE_ROWS]
    numbers = call.browse.numbers([row.entry.key for row in rows])
    problems = call.browse.numbered(list(numbers.values()))
    records = [call.snapshot.index.exact(searched.key) for searched in problems]
    states = states_of(call, problems, records)
    return {
        "tuned": tuned,
        "at": at,
        "steps": [(step, kinds(step), step.times[:_MOST_LINES]) for step in tuned.steps],
        "next": _NEXT,
        "times": model_times(known),
        "shares": {place: shares(group) for place, group in by_place(known).items()},
        "elsewhere": elsewhere(tuned.entries, call.snapshot),
        "bounds": bounds_us([row.record for row in rows if row.record], call.browse),
        "worth": WORTH,
        "order": order or "-share",
        "columns": _COLUMNS,
        "hidden": call.query.hidden(_COLUMNS, _HIDDEN),
        "lines": rows,
        "numbers": numbers,
        "states": {searched.id: its for searched, its in zip(problems, states, strict=True)},
        "pages": shown,
    }


def lines(entries: Sequence[TunedEntry], snapshot: IndexedSnapshot) -> list[WorkloadLine]:
    """What takes the model longest first."""
    made = [WorkloadLine(entry=e, record=snapshot.index.exact(e.key)) for e in entries]
    return sorted(made, key=lambda line: -line.in_all_us)


def by_place(shown: Sequence[WorkloadLine]) -> Mapping[Place, list[WorkloadLine]]:
    places: dict[Place, list[WorkloadLine]] = {}
    for line in shown:
        places.setdefault((line.entry.key.chip, line.entry.key.toolchain), []).append(line)
    return dict(sorted(places.items()))


def shares(shown: Sequence[WorkloadLine]) -> tuple[float, list[PartBar]]:
    """What a step takes, and of it each kernel, and each operation of XLA around them where it is
    known: the largest, then the rest."""
    times: Counter[str] = Counter()
    for line in shown:
        around = line.record.estimate.operations if line.record else ()
        named = {f"XLA {o.name}": line.entry.weight * o.time_us for o in around}
        rest = line.in_all_us - sum(named.values())
        times.update(named | {line.entry.key.kernel: rest})
    total, largest = sum(times.values()), times.most_common(_MOST_SHARES)
    others = f"{len(times) - len(largest)} others"
    rest = total - sum(us for _, us in largest) if len(times) > len(largest) else 0.0
    return total, bar([*largest, (others, rest)], total)


def kinds(step: TunedStep) -> list[PartBar]:
    """What of a step each kind takes now."""
    sums = dict.fromkeys((time.kind for time in step.times), 0.0)
    for time in step.times:
        sums[time.kind] += time.after_us
    return bar(sorted(sums.items(), key=lambda each: -each[1]), step.after_us)


def elsewhere(
    entries: Sequence[TunedEntry], snapshot: IndexedSnapshot
) -> list[tuple[Chip, Toolchain, int, int, float]]:
    """On each chip and toolchain that something is served for: how many of how many problems, and
    what these take of a step."""
    problems = {(e.key.kernel, e.key.fingerprint, e.key.problem): e for e in entries}.values()
    served = {
        place: [
            e.weight * record.estimate.time_us
            for e in problems
            if (record := snapshot.index.exact(replace(e.key, chip=place[0], toolchain=place[1])))
        ]
        for place in sorted({place[1:] for place in snapshot.places})
    }
    return [(*place, len(us), len(problems), sum(us)) for place, us in served.items() if us]


def model_times(shown: Sequence[WorkloadLine]) -> list[tuple[Chip, Toolchain, int, WeightedTimes]]:
    """All kernels of a model on each chip, by weight; and how many problems these are."""
    return [
        (*place, len(group), weighted_times(map(_times, group)))
        for place, group in by_place(shown).items()
    ]


def _times(line: WorkloadLine) -> tuple[float, float | None, float | None, float | None]:
    entry = line.entry
    return entry.weight, entry.before_us, entry.before_error, line.after_us
