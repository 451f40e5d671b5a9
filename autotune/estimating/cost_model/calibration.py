"""What measurements say of the estimates of the same configs. Pure: it proposes, and no more.

Compared is device time on the record's own chip; wall clock says nothing of a kernel, and void runs
say nothing at all.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median

from autotune.domain import explanation as parts
from autotune.domain.evidence import DEVICE_TIME
from autotune.domain.key import Key
from autotune.domain.known_config import KnownConfig
from autotune.domain.outcome import Estimate
from autotune.domain.record import Record, Trial

_LEAST_POINTS = 8  # of one chip, for a proposal
_BOUNDS = (0.25, 4.0)  # a factor beyond is no correction of a constant


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEstimate:
    """A config that was estimated and measured."""

    kernel: str
    chip: str
    estimate: Estimate
    measured_us: float

    @property
    def ratio(self) -> float:
        """Estimate over measurement."""
        return self.estimate.time_us / self.measured_us


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateErrors:
    """Of the estimates of a group: ``bias`` is the median of estimate over measurement less one,
    ``typical`` and ``worst`` are absolute errors as shares."""

    group: str
    points: int
    bias: float
    typical: float
    worst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Factors on the parts of a chip's estimates that fit its measurements best, and the typical
    error with and without them. A factor of ``hbm`` above one means a lower HBM efficiency."""

    chip: str
    points: int
    factors: Mapping[str, float]
    before: float
    after: float


GROUPS = {
    "hbm": (parts.HBM, parts.XLA),
    "dma_latency": (parts.LATENCY, parts.FILL),
    "step_overhead": (parts.SCALAR,),
}
"""The parts of an explanation that a constant scales. The core's own work is not corrected."""


def points(records: Iterable[tuple[Record, Sequence[Trial]]]) -> list[MeasuredEstimate]:
    """All configs of records, each with the trials of its key, that have both times."""
    measured = []
    for record, trials in records:
        run = record.measurement
        if run is None or run.void or run.method != DEVICE_TIME:
            continue
        estimates = {trial.config: trial.estimate for trial in trials}
        for timed in run.timed:
            estimate = estimates.get(timed.config) if timed.config is not None else None
            if estimate is not None and timed.median_us and not timed.refused:
                measured.append(
                    MeasuredEstimate(
                        kernel=record.key.kernel,
                        chip=record.key.chip.value,
                        estimate=estimate,
                        measured_us=timed.median_us,
                    )
                )
    return measured


def points_elsewhere(
    known: Iterable[KnownConfig], keys: Iterable[Key], trials: Callable[[Key], Sequence[Trial]]
) -> list[MeasuredEstimate]:
    """Configs that tables of others have a time for, with what was estimated of them here, under
    whatever toolchain. ``trials`` is asked for keys that a table serves. A table may leave out
    axes."""
    timed = [entry for entry in known if entry.time_us is not None]
    return [
        MeasuredEstimate(
            kernel=key.kernel,
            chip=key.chip.value,
            estimate=trial.estimate,
            measured_us=entry.time_us,
        )
        for key in keys
        if (
            entries := [
                entry
                for entry in timed
                if entry.chips
                and entry.kernel == key.kernel
                and entry.serves(key.problem, key.chip)
            ]
        )
        for trial in trials(key)
        if trial.estimate is not None
        for entry in entries
        if entry.time_us and dict(entry.axes).items() <= dict(trial.config.axes).items()
    ]


def errors(measured: Sequence[MeasuredEstimate]) -> list[EstimateErrors]:
    """By kernel and chip, then by what limits the kernel."""
    groups: dict[str, list[float]] = {}
    for point in measured:
        groups.setdefault(f"{point.kernel} on {point.chip}", []).append(point.ratio)
    for point in measured:
        groups.setdefault(f"limited by {point.estimate.limiting_part}", []).append(point.ratio)
    return [
        EstimateErrors(
            group=group,
            points=len(ratios),
            bias=exp(median(map(log, ratios))) - 1,
            typical=median(abs(r - 1) for r in ratios),
            worst=max(abs(r - 1) for r in ratios),
        )
        for group, ratios in groups.items()
    ]


def proposals(measured: Sequence[MeasuredEstimate]) -> list[Proposal]:
    """For each chip with enough points: least squares of relative errors over the factors."""
    chips = dict.fromkeys(point.chip for point in measured)
    by_chip = {c: [p for p in measured if p.chip == c and p.estimate.explanation] for c in chips}
    return [
        _proposal(c, measured_there)
        for c, measured_there in by_chip.items()
        if len(measured_there) >= _LEAST_POINTS
    ]


def _proposal(chip: str, measured: Sequence[MeasuredEstimate]) -> Proposal:
    """A group that no estimate has a part of keeps its factor."""
    from scipy.optimize import lsq_linear  # for those who measure: a base install has none

    rows = [_row(point) for point in measured]
    names = [name for name in GROUPS if any(row[name] for row in rows)]
    factors = dict.fromkeys(GROUPS, 1.0)
    if names:
        weights = [[row[name] for name in names] for row in rows]
        best = lsq_linear(weights, [1 - row["rest"] for row in rows], bounds=_BOUNDS).x
        factors |= zip(names, map(float, best), strict=True)
    before = [abs(point.ratio - 1) for point in measured]
    after = [abs(row["rest"] + sum(factors[n] * row[n] for n in GROUPS) - 1) for row in rows]
    return Proposal(
        chip=chip, points=len(measured), factors=factors, before=median(before), after=median(after)
    )


def _row(point: MeasuredEstimate) -> dict[str, float]:
    """Shares of the measured time, by group, and what no factor touches."""
    why = point.estimate.explanation
    assert why is not None
    shares = {
        name: sum(why.part_us(part) for part in group) / point.measured_us
        for name, group in GROUPS.items()
    }
    return {**shares, "rest": point.ratio - sum(shares.values())}
