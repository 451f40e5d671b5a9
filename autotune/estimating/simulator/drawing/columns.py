"""A section of a run in columns of equal length: what most of each is, and for which line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import PurePath

from autotune.domain.profile import NamedPart, SourceLine
from autotune.estimating.simulator.drawing.picture import LINE, OPERATIONS, SHARE, TraceSlice

_COLUMNS = 200  # of a section
_LEVELS = 4  # of how busy it is: neighbours that differ by less are one slice
_MOST_OPCODES = 6  # are named of a slice

Row = SourceLine | NamedPart


def label(row: Row) -> str:
    """A line with its place and text, or the name of a part."""
    if isinstance(row, NamedPart):
        return row.value
    return f"{PurePath(row.file).name}:{row.line} {row.text}"


class Columns:
    """Of one track, from ``begin`` to ``end``, cycles."""

    def __init__(self, begin: float, end: float) -> None:
        self._begin, self._width = begin, max(end - begin, 1.0) / _COLUMNS
        self._cycles: dict[int, Counter[tuple[str, str]]] = {}
        self._opcodes: dict[int, Counter[str]] = {}

    def add(
        self, kind: str, line: str, begin: float, end: float, cycles: float, opcode: str = ""
    ) -> None:
        """``cycles``: of those from ``begin`` to ``end``, which several may share."""
        first = self._column(begin)
        for number in range(first, self._column(end) + 1):
            within = min(end, self._edge(number + 1)) - max(begin, self._edge(number))
            if within > 0:
                column = self._cycles.setdefault(number, Counter())
                column[kind, line] += cycles * within / (end - begin)  # type: ignore[assignment]
        if opcode:
            self._opcodes.setdefault(first, Counter())[opcode] += 1

    def _column(self, cycle: float) -> int:
        return min(max(int((cycle - self._begin) / self._width), 0), _COLUMNS - 1)

    def _edge(self, number: int) -> float:
        return self._begin + number * self._width

    def slices(self, to_us: Callable[[float], float]) -> Iterator[TraceSlice]:
        """Neighbours of the same kind and about the same share as one."""
        cycles = self._cycles

        def key(place: tuple[int, int]) -> tuple[str, int, int]:
            order, number = place
            level = int(_LEVELS * cycles[number].total() / self._width)
            return next(iter(_sums(cycles[number], 0))), level, number - order

        for (kind, *_), group in groupby(enumerate(sorted(cycles)), key):
            numbers = [number for _, number in group]
            begin, end = self._edge(numbers[0]), self._edge(numbers[-1] + 1)
            issued, spent = Counter[str](), Counter[tuple[str, str]]()
            for number in numbers:
                issued += self._opcodes.get(number, Counter())
                spent += cycles[number]
            details = {
                LINE: next(iter(_sums(spent, 1))),
                SHARE: round(min(spent.total() / (end - begin), 1.0), 6),
                **{f"{what}, µs": round(to_us(n), 6) for what, n in _sums(spent, 0).items()},
                OPERATIONS: dict(issued.most_common(_MOST_OPCODES)),
            }
            yield TraceSlice(kind, to_us(begin), to_us(end), details)


def _sums(cycles: Counter[tuple[str, str]], field: int) -> dict[str, float]:
    """By one field of the keys, the most first."""
    sums = Counter[str]()
    for key, count in cycles.items():
        sums[key[field]] += count
    return dict(sums.most_common())
