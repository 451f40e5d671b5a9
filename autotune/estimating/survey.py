"""Where the rules leave nothing of a space: from the verdicts on its raw points."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from random import Random
from typing import Any

import numpy as np

from autotune.domain.chip import ChipInfo
from autotune.domain.config import PARALLEL, AxisValue
from autotune.domain.config_parts import (
    GRID_ORDER,
    SEMANTICS,
    VMEM_LIMIT,
    limit_text,
    order_text,
    semantics_text,
)
from autotune.domain.outcome import Failure, Illegal, Outcome, OutOfVmem
from autotune.domain.refusals import MOST_CELLS, Cell, Pair, Refusals, Refused
from autotune.estimating.space import Judged, Space
from autotune.estimating.vmem import limit_bytes, limit_rungs, out_of_vmem

_MOST_POINTS = 100_000  # takes 0.6 s
# How close a point is to being compiled; the two before the last are in the way of some settings.
_FAILED, _ILLEGAL, _VMEM, _SEQUENTIAL, _OVER_LIMIT, _LEGAL = range(6)
_STEP = 2**50  # between stages: more than any bytes of VMEM

Under = dict[str, int | None]
"""The settings that points are looked at under: how many grid axes are parallel, and the limit."""
Ints = np.ndarray[Any, np.dtype[np.int64]]


def survey(space: Space, chip: ChipInfo) -> Refusals:
    """The cells of all pairs of parts in which no raw point may be compiled. Of more than
    ``MOST_CELLS`` the pairs after those are left out."""
    points: Sequence[Judged] = space.judged
    if len(points) > _MOST_POINTS:
        points = Random(0).sample(points, _MOST_POINTS)  # noqa: S311 (the same every time)
    table = _Table(points, chip)
    parts = [*_columns(points), *_settings(space, points, chip)]
    cells: dict[Pair, dict[Cell, Refused]] = {}
    left_out: list[Pair] = []
    for x, y in combinations_with_replacement(parts, 2):
        closed = dict(table.closed(x, y))
        if sum(map(len, cells.values())) + len(closed) > MOST_CELLS:
            left_out.append((x.name, y.name))
        elif closed:
            cells[x.name, y.name] = closed
    return Refusals(
        values={part.name: part.values for part in parts},
        cells=cells,
        left_out=tuple(left_out),
        sampled=space.sampled or len(points) < len(space.judged),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConfigPart:
    """``codes``: the place of each point's value. None for a setting: a raw point is without one,
    and stands for all of its values, which ``settings`` are the meanings of (see ``Under``)."""

    name: str
    values: tuple[AxisValue, ...]
    codes: Ints | None = None
    settings: tuple[int | None, ...] = ()


def _columns(points: Sequence[Judged]) -> list[_ConfigPart]:
    """The declared axes and the grid order."""
    names = [name for name, _ in points[0].config.axes]
    columns = [
        _column(name, [point.config.axes[place][1] for point in points])
        for place, name in enumerate(names)
    ]
    if points[0].config.grid_order:
        columns.append(
            _column(GRID_ORDER, [order_text(point.config.grid_order) for point in points])
        )
    return columns


def _column(name: str, values: Sequence[AxisValue]) -> _ConfigPart:
    """True is 1 to a dictionary: so it goes by the text."""
    texts = list(map(str, values))
    first = dict(zip(reversed(texts), reversed(values), strict=True))
    place = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    codes = np.array([place[text] for text in texts], dtype=np.int64)
    return _ConfigPart(name=name, values=tuple(first[text] for text in place), codes=codes)


def _settings(space: Space, points: Sequence[Judged], chip: ChipInfo) -> list[_ConfigPart]:
    """What the rules choose, where the kernel passes it on to the compiler: the values that some
    point is compiled under."""
    legal = [point for point in points if point.refused is None]
    settings = []
    kinds = {kind for point in legal for kind in point.semantics if kind}
    if space.passed_on.semantics and kinds:
        ordered = sorted(kinds, key=lambda kind: (-kind.count(PARALLEL), kind))
        texts, parallel = map(semantics_text, ordered), (kind.count(PARALLEL) for kind in ordered)
        settings.append(_ConfigPart(name=SEMANTICS, values=tuple(texts), settings=tuple(parallel)))
    if space.passed_on.limit:
        used = {point.limit for point in legal}
        rungs = [rung for rung in limit_rungs(chip) if rung in used]
        texts = map(limit_text, rungs)
        settings.append(_ConfigPart(name=VMEM_LIMIT, values=tuple(texts), settings=tuple(rungs)))
    return [setting for setting in settings if setting.values]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranked:
    """The points under some settings. ``order``: from the farthest from being compiled to the
    closest, ``rank``: their places in it."""

    stage: Ints
    order: Ints
    rank: Ints


class _Table:
    """The points, each with its verdict under the settings that are asked for."""

    def __init__(self, points: Sequence[Judged], chip: ChipInfo) -> None:
        self._points, self._chip = points, chip
        self._stage = np.array([_stage(point.refused) for point in points], dtype=np.int64)
        self._least = np.array(list(map(_least_bytes, points)), dtype=np.int64)
        parallel = [point.semantics[0].count(PARALLEL) for point in points]
        self._parallel = np.array(parallel, dtype=np.int64)
        self._ranked: dict[tuple[tuple[str, int | None], ...], _Ranked] = {}

    def closed(self, x: _ConfigPart, y: _ConfigPart) -> Iterator[tuple[Cell, Refused]]:
        """The cells of two parts in which nothing may be compiled."""
        settings = {part.name: part for part in (x, y) if part.codes is None}
        for places_of in product(*(range(len(part.values)) for part in settings.values())):
            chosen = dict(zip(settings, places_of, strict=True))
            under = {name: settings[name].settings[place] for name, place in chosen.items()}
            places = [
                np.full(len(self._points), chosen[part.name]) if part.codes is None else part.codes
                for part in (x, y)
            ]
            for cell, point, count in self._refused(places, (x, y), under):
                why = self._why(self._points[point], under)
                names = (str(x.values[cell[0]]), str(y.values[cell[1]]))
                yield names, Refused.by(why, count)

    def _refused(
        self, places: Sequence[Ints], parts: tuple[_ConfigPart, _ConfigPart], under: Under
    ) -> Iterator[tuple[tuple[int, int], int, int]]:
        """Each closed cell with the point that comes closest and the number of its points."""
        width = len(parts[1].values)
        codes = places[0] * width + places[1]
        ranked = self._under(under)
        closest = np.full(len(parts[0].values) * width, -1, dtype=np.int64)
        np.maximum.at(closest, codes, ranked.rank)
        counts = np.bincount(codes, minlength=len(closest))
        cells = np.flatnonzero(closest >= 0)
        points = ranked.order[closest[cells]]
        refused = ranked.stage[points] != _LEGAL
        for cell, point in zip(cells[refused].tolist(), points[refused].tolist(), strict=True):
            yield divmod(cell, width), point, int(counts[cell])

    def _under(self, under: Under) -> _Ranked:
        key = tuple(under.items())
        if key not in self._ranked:
            stage = self._stage.copy()
            if VMEM_LIMIT in under:
                allowed = limit_bytes(under[VMEM_LIMIT], self._chip)
                stage[(stage == _LEGAL) & (self._least > allowed)] = _OVER_LIMIT
            if SEMANTICS in under:
                wanted = under[SEMANTICS] or 0
                stage[(self._stage == _LEGAL) & (self._parallel < wanted)] = _SEQUENTIAL
            order = np.argsort(stage * _STEP - self._least, kind="stable")
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            self._ranked[key] = _Ranked(stage=stage, order=order, rank=rank)
        return self._ranked[key]

    def _why(self, point: Judged, under: Under) -> Failure:
        if point.refused is not None:
            return point.refused
        if point.semantics[0].count(PARALLEL) < (under.get(SEMANTICS) or 0):
            assert point.sequential is not None
            return point.sequential
        return out_of_vmem(point.least_bytes, under[VMEM_LIMIT], self._chip)


def _stage(refused: Outcome | None) -> int:
    if refused is None:
        return _LEGAL
    if isinstance(refused, OutOfVmem):
        return _VMEM
    return _ILLEGAL if isinstance(refused, Illegal) else _FAILED


def _least_bytes(point: Judged) -> int:
    return point.refused.used_bytes if isinstance(point.refused, OutOfVmem) else point.least_bytes
