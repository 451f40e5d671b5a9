"""Each kernel as a card: a lane for each chip, on which each published problem is a dot, as many
times as fast as its default and as plain XLA; and how many of its problems are published."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median
from typing import Any

from autotune.domain.key import Chip, Key, Toolchain
from autotune.domain.record import Record
from autotune.wording.units import ratio
from autotune_db.browse import SqlBrowse
from autotune_service.pages.call import once_for_each_snapshot
from autotune_service.pages.filters import toolchain_name
from autotune_service.pages.render import kernel_path, link
from autotune_service.pages.speed import speed
from autotune_service.snapshot_cache import IndexedSnapshot, Published


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Of one record. ``key_id``: the number of its key; ``is_predicted``: the default was not
    compiled. Times as fast are as measured where that decided, else as estimated."""

    key: Key
    key_id: int
    time_us: float
    over_default: float | None
    over_xla: float | None
    is_predicted: bool = False


@once_for_each_snapshot
def gains(snapshot: IndexedSnapshot, browse: SqlBrowse) -> Mapping[int, Gain]:
    """By the number of the key. For a thread: all records are looked at."""
    records = list(snapshot.index)
    numbers = browse.numbers([record.key for record in records])
    known = [_gain(record, numbers[record.key]) for record in records if record.key in numbers]
    return {gain.key_id: gain for gain in known}


def _gain(record: Record, key_id: int) -> Gain:
    fast = speed(record)
    known = fast.measured_over_default or fast.over_default
    return Gain(
        key=record.key,
        key_id=key_id,
        time_us=record.estimate.time_us,
        over_default=known or fast.predicted_over_default,
        is_predicted=not known and record.default.is_predicted,
        over_xla=fast.measured_over_xla or fast.over_xla_own,
    )


DEFAULT = "its default"
_STEPS = 70  # places of a lane: dots that fall on one of them are one dot
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000)


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


def share(place: Published, searched: int, published: int) -> dict[str, Any]:
    """How many of the problems of a place that were searched are published."""
    kernel, chip, toolchain = place
    state = "all" if published == searched else "some" if published else "open"
    where = link(kernel_path(kernel), chip=chip.value, toolchain=toolchain_name(toolchain))
    return {
        "searched": searched,
        "published": published,
        "link": where,
        "state": state if searched else "none",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """What is published, on one scale. ``averages``: of each kernel, over its default."""

    scale: Scale
    average: dict[str, Any]
    averages: Mapping[str, dict[str, Any]]
    lanes: Mapping[tuple[str, Chip], dict[str, Any]]


def lanes_of(gains: Sequence[Gain], scale: Scale | None = None) -> Lanes:
    """``scale``: by default one on which all of them are."""
    by_kernel: dict[str, list[Gain]] = {}
    by_chip: dict[tuple[str, Chip], list[Gain]] = {}
    for gain in gains:
        by_kernel.setdefault(gain.key.kernel, []).append(gain)
        by_chip.setdefault((gain.key.kernel, gain.key.chip), []).append(gain)
    times = [t for gain in gains for t in (gain.over_default, gain.over_xla)]
    drawn = [t for t in times if t and 1e-3 < t < 1e6]
    scale = scale or Scale(low=min([0.5, *drawn]) / 1.3, high=max([2.0, *drawn]) * 1.3)
    return Lanes(
        scale=scale,
        average=_average(gains),
        averages={kernel: _average(its) for kernel, its in by_kernel.items()},
        lanes={
            (kernel, chip): lane(kernel, chip, g, scale) for (kernel, chip), g in by_chip.items()
        },
    )


def _average(gains: Sequence[Gain]) -> dict[str, Any]:
    return {"middle": middle([gain.over_default for gain in gains]), "predicted": predicted(gains)}


def cards(
    searched: "Counter[Published]",
    published: "Counter[Published]",
    described: Sequence[str],
    drawn: Lanes,
    shown: Sequence[Toolchain],
) -> list[dict[str, Any]]:
    """A kernel with a row for each chip; also those that were described and never searched."""
    there = {place[:2] for place in searched if place[2] in shown}
    return [
        {
            "name": name,
            **(drawn.averages.get(name) or _average(())),
            "rows": [
                {
                    **(drawn.lanes.get((name, chip)) or lane(name, chip, (), drawn.scale)),
                    "cells": [
                        share(place := (name, chip, toolchain), searched[place], published[place])
                        for toolchain in shown
                    ],
                }
                for chip in sorted(chip for kernel, chip in there if kernel == name)
            ],
        }
        for name in sorted({name for name, _ in there} | set(described))
    ]


def lane(kernel: str, chip: Chip, gains: Sequence[Gain], scale: Scale) -> dict[str, Any]:
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
