"""Workloads: what was tuned together, and what is served for it now."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from autotune.domain.chip import Chip
from autotune.domain.record import Record
from autotune.domain.toolchain import Toolchain
from autotune.domain.workload import TunedEntry, WeightedTimes, weighted_times
from autotune_service.dependencies import ask, snapshots_of, store
from autotune_service.errors import HttpError
from autotune_service.pages.filters import PAGE_ROWS, pages, query_of
from autotune_service.pages.render import page
from autotune_service.snapshot_cache import IndexedSnapshot

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLine:
    """A problem of a workload."""

    entry: TunedEntry
    record: Record | None

    @property
    def after_us(self) -> float | None:
        return self.record.estimate.time_us if self.record else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTime:
    """All kernels of a model on a chip, by weight."""

    chip: Chip
    toolchain: Toolchain
    problems: int
    sums: WeightedTimes


@router.get("/workloads")
async def workloads(request: Request) -> Response:
    """All that were tuned into this database."""
    query = query_of(request)
    found = await ask(request, store(request).workloads.names)
    return await page(request, "workloads.html", query=query.done(), found=found)


@router.get("/workloads/{name:path}")
async def workload(request: Request, name: str) -> Response:
    """One: before, after and evidence of each problem, and the time of all of them by chip."""
    query = query_of(request)
    found = await ask(request, store(request).workloads.find, name)
    if found is None:
        raise HttpError(404, "unknown_workload", f"There is no workload {name[:80]}.")
    tuned, at = found
    known = await ask(request, lines, tuned.entries, snapshots_of(request).current)
    shown = pages(query, len(known))
    rows = known[shown.offset :][:PAGE_ROWS]
    numbers = await ask(request, store(request).browse.numbers, [row.entry.key for row in rows])
    return await page(
        request,
        "workload.html",
        query=query.done(),
        tuned=tuned,
        at=at,
        times=await ask(request, model_times, known),
        lines=rows,
        numbers=numbers,
        pages=shown,
    )


def lines(entries: Sequence[TunedEntry], snapshot: IndexedSnapshot) -> list[WorkloadLine]:
    """What takes the model longest first."""
    made = [WorkloadLine(entry=e, record=snapshot.index.exact(e.key)) for e in entries]
    return sorted(made, key=lambda o: -o.entry.weight * (o.after_us or o.entry.before_us or 0.0))


def model_times(shown: Sequence[WorkloadLine]) -> list[ModelTime]:
    targets: dict[tuple[Chip, Toolchain], list[WorkloadLine]] = {}
    for one in shown:
        targets.setdefault((one.entry.key.chip, one.entry.key.toolchain), []).append(one)
    return [
        ModelTime(
            chip=chip,
            toolchain=toolchain,
            problems=len(mine),
            sums=weighted_times(
                (o.entry.weight, o.entry.before_us, o.entry.before_error, o.after_us) for o in mine
            ),
        )
        for (chip, toolchain), mine in sorted(targets.items())
    ]
