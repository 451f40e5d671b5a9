"""Slices through the space, as Optuna draws them: the times of each value of an axis."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from autotune.wording.units import micros
from autotune_service.pages.candidates import ESTIMATED, ShownTrial
from autotune_service.pages.plots import ordered, varying
from autotune_service.pages.ranges import TimeLine, placed

_MOST_VALUES = 12  # of an axis, those of the fastest trials


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisSlice:
    """One part of the config, with a line for each of its values: from the fastest trial that has
    it to the one in the middle."""

    name: str
    lines: Sequence[TimeLine]


def slices(shown: Sequence[ShownTrial]) -> list[AxisSlice]:
    """Of what is not the same for all; all lines on one scale, so that they can be compared."""
    timed = sorted((c for c in shown if c.group == ESTIMATED), key=lambda c: c.time_us or 0.0)
    found = [(name, line) for name in varying(timed) for line in _lines(name, timed)]
    on_scale = placed([line for _, line in found])
    by_name: dict[str, list[TimeLine]] = {}
    for (name, _), line in zip(found, on_scale, strict=True):
        by_name.setdefault(name, []).append(line)
    return [AxisSlice(name=name, lines=lines) for name, lines in by_name.items()]


def _lines(name: str, timed: Sequence[ShownTrial]) -> list[TimeLine]:
    """``timed``: the fastest first."""
    times: dict[str, list[float]] = {}
    for c in timed:
        times.setdefault(str(c.values.get(name, "–")), []).append(c.time_us or 0.0)
    drawn = list(times)[:_MOST_VALUES]
    order = ordered(name, (c.values.get(name, "–") for c in timed), timed)
    return [_line(value, times[value]) for value in order if value in drawn]


def _line(value: str, times: Sequence[float]) -> TimeLine:
    trials = "1 trial" if len(times) == 1 else f"{len(times):,} trials"
    return TimeLine(
        name=value,
        kind="default",
        at=times[0],
        least=times[0],
        most=median(times),
        text=f"{micros(times[0])}, {trials}",
    )
