"""How many times as fast as the default and as plain XLA each published problem is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import exp, log
from statistics import median

from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.wording.units import ratio
from autotune_db.browse import SqlBrowse
from autotune_service.pages.speed import speed
from autotune_service.snapshot_cache import IndexedSnapshot

DEFAULT = "its default"
_STEPS = 70  # places of a lane: dots that fall on one of them are one dot
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Of one record. ``key_id``: the number of its key; ``is_predicted``: the default was not
    compiled."""

    key: Key
    key_id: int
    over_default: float | None
    over_xla: float | None
    at: datetime
    is_predicted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """``x`` in percent of the lane; ``count``: how many problems stand there."""

    x: float
    count: int
    link: str
    text: str


def gains(browse: SqlBrowse, snapshot: IndexedSnapshot) -> list[Gain]:
    """Of all records in a snapshot, the oldest first."""
    records = sorted(snapshot.index, key=lambda record: record.created_at)
    numbers = browse.numbers([record.key for record in records])
    return [_gain(one, numbers[one.key]) for one in records if one.key in numbers]


def _gain(record: Record, key_id: int) -> Gain:
    found = speed(record)
    known = found.measured_over_default or found.over_default
    return Gain(
        key=record.key,
        key_id=key_id,
        over_default=known or found.predicted_over_default,
        is_predicted=not known and record.default.is_predicted,
        over_xla=found.measured_over_xla or found.over_xla_own,
        at=record.created_at,
    )


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


def scale(found: Sequence[Gain]) -> Scale:
    times = [t for one in found for t in (one.over_default, one.over_xla) if t and 1e-3 < t < 1e6]
    return Scale(low=min([0.5, *times]) / 1.3, high=max([2.0, *times]) * 1.3)


def dots(
    found: Sequence[Gain],
    on: Scale,
    times_of: Callable[[Gain], float | None],
    what: str,
    several: str,
) -> list[Dot]:
    """``several``: where those of a place that has more than one are listed."""
    places: dict[int, list[tuple[float, Gain]]] = {}
    for one in found:
        times = times_of(one)
        if times:
            places.setdefault(round(on.place(times) / 100 * _STEPS), []).append((times, one))
    return [_dot(place, mine, what, several) for place, mine in sorted(places.items())]


def _dot(place: int, mine: Sequence[tuple[float, Gain]], what: str, several: str) -> Dot:
    times, first = mine[0]
    text = f"{first.key.problem}, jax {first.key.toolchain.jax}"
    if len(mine) > 1:
        times, text = median(t for t, _ in mine), f"{len(mine)} problems"
    return Dot(
        x=round(100 * place / _STEPS, 1),
        count=len(mine),
        link=f"/keys/{first.key_id}" if len(mine) == 1 else several,
        text=f"{text}: {ratio(times, 1)} {what}"
        + told([one for _, one in mine]) * (what == DEFAULT),
    )


def told(mine: Sequence[Gain]) -> str:
    """Of how many the default was not compiled; empty where that is none."""
    count = sum(one.is_predicted for one in mine)
    return f" ({count} predicted)" if count and len(mine) > 1 else " (predicted)" * bool(count)


def middle(times: Sequence[float | None]) -> float | None:
    """The geometric mean of what is known: twice and half as fast make no difference."""
    known = [log(time) for time in times if time]
    return exp(sum(known) / len(known)) if known else None


def over_time(found: Sequence[Gain]) -> list[tuple[datetime, float]]:
    """The middle of what had been published by then."""
    points, total, number = [], 0.0, 0
    for one in found:
        if one.over_default:
            total, number = total + log(one.over_default), number + 1
            points.append((one.at, exp(total / number)))
    return points
