"""The sweeps that no constant was fitted on: our time of each point beside libtpu's own."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from autotune.estimating.cost_model.estimate import regime
from autotune.estimating.simulator import NotSimulated, simulate
from benchmarks.calibration.agreement import Pair
from benchmarks.calibration.as_libtpu import cycles_as_libtpu_counts
from benchmarks.calibration.corpus import CHIPS, Reference, load
from benchmarks.calibration.samples import SWEEPS

T = TypeVar("T")
K = TypeVar("K")

_HELD_OUT = {sweep.name for sweep in SWEEPS}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutPoint:
    """One point: what it is, and our cycles against libtpu's."""

    chip: str
    libtpu: str
    sweep: str
    family: str
    pair: Pair

    @property
    def error(self) -> float:
        return abs(self.pair.ratio - 1)


def compare(folder: Path) -> tuple[list[HeldOutPoint], int]:
    """All points that were collected, and how many the simulator refuses."""
    references = [r for chip in CHIPS for r in load(folder, chip) if _is_held_out(r)]
    with ProcessPoolExecutor(2) as workers:
        compared = list(workers.map(_row, references, chunksize=8))
    rows = [row for row in compared if row is not None]
    return rows, len(compared) - len(rows)


def _is_held_out(reference: Reference) -> bool:
    return reference.sample.sweep.name in _HELD_OUT


def _row(reference: Reference) -> HeldOutPoint | None:
    """None where the listing is refused."""
    result = simulate(reference.listing(), chip=reference.chip, libtpu=reference.libtpu)
    if isinstance(result, NotSimulated):
        return None
    sweep = reference.sample.sweep
    cycles = cycles_as_libtpu_counts(
        reference.listing(), chip=reference.chip, libtpu=reference.libtpu
    )
    return HeldOutPoint(
        chip=reference.chip,
        libtpu=reference.libtpu,
        sweep=sweep.name,
        family=sweep.family,
        pair=Pair(
            subset="libtpu",
            chip=reference.chip,
            family=sweep.family,
            group=reference.sample.name,
            limited_by=regime(result.parts),
            measured_us=reference.cycles / result.clock_hz * 1e6,
            estimated_us=cycles / result.clock_hz * 1e6,
        ),
    )


def sweep_of(row: HeldOutPoint) -> tuple[str, ...]:
    """What the configs of one problem have in common."""
    return row.chip, row.libtpu, row.sweep


def problem_of(pair: Pair) -> tuple[str, str]:
    """The same of measured times."""
    return pair.subset, "all" if pair.subset.startswith("tunejax") else pair.group


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """In the order in which the keys come first."""
    groups: dict[K, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups
