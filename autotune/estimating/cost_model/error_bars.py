"""What error bar measured times ask for: nine of ten are to be within one that was made without
their family. For the data files of the product (``benchmarks/calibration/error_bars.py``) and for
what is measured with one database (``autotune calibrate``)."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil
from statistics import median

from autotune.domain.calibration import MeasuredBars, MeasuredProgram
from autotune.domain.outcome import Estimate
from autotune.estimating.simulator import MODEL, constants

SHARE = 0.9  # of the rows that are to be within their bar
ROUNDING = 1e-9
_FEWEST_ROWS, _FEWEST_FAMILIES = 5, 2  # for a bar

Errors = Mapping[tuple[str, str], Mapping[str, Sequence[float]]]
"""Of estimates against measured times, as shares. By kind (kernels, or XLA) and chip; then by
family."""


def quantile(errors: Sequence[float], share: float) -> float:
    """What this share of the rows stays within, by the nearest rank; ``errors`` are sorted."""
    return errors[ceil(share * len(errors) - ROUNDING) - 1]


def width(families: Mapping[str, Sequence[float]]) -> float:
    """What nine of ten errors stay within, each family with the same weight."""
    return nine_of_ten((e, 1 / len(chosen)) for chosen in families.values() for e in chosen)


def nine_of_ten(errors: Iterable[tuple[float, float]]) -> float:
    """What nine of ten errors stay within, each with its weight."""
    weighed = sorted(errors)
    sums = [*accumulate(weight for _, weight in weighed)]
    return weighed[bisect_left(sums, (SHARE - ROUNDING) * sums[-1])][0]


def caution(errors: Errors) -> float:
    """The smallest factor, of two digits, with which nine of ten errors of families that are left
    out of their bar are within it."""
    asked = sorted(ratio for *_, ratios in left_out(errors) for ratio in ratios)
    return ceil(100 * max(1.0, quantile(asked, SHARE)) - ROUNDING) / 100


def left_out(errors: Errors) -> Iterator[tuple[str, str, str, float, list[float]]]:
    """Kind, chip and family, the width that the other families of the chip ask for, and how many
    times that its errors are. Without another family, those of all chips make it."""
    for (kind, chip), families in errors.items():
        for family, chosen in families.items():
            others = {n: ratios for n, ratios in families.items() if n != family} or {
                f"{c} {n}": ratios
                for (k, c), elsewhere in errors.items()
                for n, ratios in elsewhere.items()
                if k == kind and c != chip
            }
            wide = width(others)
            yield kind, chip, family, wide, [error / max(wide, ROUNDING) for error in chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateErrors:
    """Of the estimates of a group: ``bias`` is the median of estimate over measurement less one,
    ``typical`` (the median) and ``worst`` are absolute errors as shares."""

    group: str
    points: int
    bias: float
    typical: float
    worst: float


def errors_by_kernel(rows: Iterable[MeasuredProgram]) -> Iterator[EstimateErrors]:
    """Plain XLA is a group of its own."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        name = "plain XLA" if row.config is None else row.key.kernel
        groups.setdefault(name, []).append(row.estimate_us / row.measured_us - 1)
    for group, off in groups.items():
        typical, worst = median(map(abs, off)), max(map(abs, off))
        yield EstimateErrors(
            group=group, points=len(off), bias=median(off), typical=typical, worst=worst
        )


def measured_bars(rows: Sequence[MeasuredProgram]) -> MeasuredBars | None:
    """Of programs of one chip and toolchain that this model has estimated; None for none. Equal
    programs are one. What a file has makes no bar narrower than what was timed here."""
    ordered = sorted(rows, key=lambda row: not row.from_file)
    different = {row.program: row for row in ordered if row.model == MODEL}.values()
    if not different:
        return None
    return MeasuredBars(
        rows=len(different),
        families=len({row.key.kernel for row in different}),
        from_file=sum(row.from_file for row in different),
        kernels=_wider([row for row in different if row.config is not None]),
        xla=_wider([row for row in different if row.config is None]),
    )


def _wider(rows: Sequence[MeasuredProgram]) -> float | None:
    return max(filter(None, (_bar(rows), _bar([r for r in rows if not r.from_file]))), default=None)


def _bar(rows: Sequence[MeasuredProgram]) -> float | None:
    """Never more than the largest error: a kernel that is far off asks for a large factor."""
    families: dict[str, list[float]] = {}
    for row in rows:
        error = abs(row.estimate_us / row.measured_us - 1)
        families.setdefault(row.key.kernel, []).append(error)
    if len(rows) < _FEWEST_ROWS or len(families) < _FEWEST_FAMILIES:
        return None
    wide = width(families) * caution({("", ""): families})
    return round(min(wide, max(map(max, families.values()))), 3)


def with_measured_bars(estimate: Estimate, bars: MeasuredBars | None, chip: str) -> Estimate:
    """To be shown: where this database asks for a wider error bar, with that. The same estimate
    elsewhere, and where there is no bar. Kernel and XLA count by their time."""
    if bars is None or estimate.error is None:
        return estimate
    whole_us, xla_us = estimate.error * estimate.time_us, estimate.xla_us
    unsure_us = whole_us - (constants.kernel_error(chip) or 0.0) * estimate.kernel_us
    known_us = max((constants.xla_error(chip) or 0.0) * xla_us, min(unsure_us, xla_us))
    known_us = min(known_us, whole_us)  # the rest: the kernel
    kernel_us = max(whole_us - known_us, (bars.kernels or 0.0) * estimate.kernel_us)
    error = (kernel_us + max(known_us, (bars.xla or 0.0) * xla_us)) / estimate.time_us
    is_wider = error > estimate.error * (1 + ROUNDING)
    return replace(estimate, error=error) if is_wider else estimate
