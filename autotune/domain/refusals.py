"""Where the rules leave nothing of a space: what is never compiled has no trial that says why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from autotune.domain.config import AxisValue

MOST_CELLS = 10_000  # of all pairs together

Cell = tuple[str, str]
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """``points`` raw points were looked at, and each was refused before it was compiled. ``kind``
    (of an outcome) and ``reason`` are those of the one that came closest to being compiled."""

    kind: str
    reason: str
    points: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """``values`` of each part of a config, under the names of ``autotune.wording.config.parts_of``.

    ``cells``: for two parts, in the order of ``values``, their values (as text) with which nothing
    may be compiled; for one part beside itself, the values that are out of the question whatever
    the others are. ``sampled``: not every raw point was looked at. ``left_out``: pairs of which
    nothing is kept, because there would be too many cells.
    """

    values: Mapping[str, Sequence[AxisValue]]
    cells: Mapping[Pair, Mapping[Cell, Refused]] = field(default_factory=dict)
    sampled: bool = False
    left_out: tuple[Pair, ...] = ()

    def of(self, x: str, y: str | None = None) -> Mapping[Cell, Refused]:
        """By the values of ``x`` and ``y``; without ``y`` by that of ``x``, twice."""
        if y is None or (x, y) in self.cells:
            return self.cells.get((x, y or x), {})
        return {(a, b): one for (b, a), one in self.cells.get((y, x), {}).items()}

    def is_left_out(self, x: str, y: str | None = None) -> bool:
        """Whether nothing is known of two parts."""
        return bool({(x, y or x), (y or x, x)} & set(self.left_out))

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data, each reason once; ``from_data`` is the inverse."""
        names = list(self.values)
        texts = {name: {str(v): n for n, v in enumerate(self.values[name])} for name in names}
        reasons: dict[tuple[str, str], int] = {}
        pairs = []
        for (x, y), cells in self.cells.items():
            kept = [
                [
                    texts[x][a],
                    texts[y][b],
                    reasons.setdefault((c.kind, c.reason), len(reasons)),
                    c.points,
                ]
                for (a, b), c in cells.items()
            ]
            pairs.append([names.index(x), names.index(y), kept])
        return {
            "values": [[name, list(self.values[name])] for name in names],
            "reasons": [list(reason) for reason in reasons],
            "cells": pairs,
            "sampled": self.sampled,
            "left_out": [list(pair) for pair in self.left_out],
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Raises ``IndexError`` for a place where there is nothing."""
        values = {name: tuple(found) for name, found in data["values"]}
        names, reasons = list(values), [tuple(reason) for reason in data["reasons"]]
        texts = [[str(value) for value in found] for found in values.values()]
        cells = {
            (names[x], names[y]): {
                (texts[x][a], texts[y][b]): Refused(
                    kind=reasons[why][0], reason=reasons[why][1], points=points
                )
                for a, b, why, points in kept
            }
            for x, y, kept in data["cells"]
        }
        return cls(
            values=values,
            cells=cells,
            sampled=data["sampled"],
            left_out=tuple((x, y) for x, y in data["left_out"]),
        )
