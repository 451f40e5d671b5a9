"""Where the rules leave nothing of a space: what is never compiled has no trial that says why."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

from autotune.domain.codec import OmitDefault, from_data, to_data
from autotune.domain.config import AxisValue
from autotune.domain.limits import MOST_NAMES, Count, Limit, Text, Word
from autotune.domain.outcome import Failure, Illegal, OutOfVmem

MOST_CELLS = 10_000  # of all pairs together

Cell = tuple[str, str]
Pair = tuple[str, str]


_NumberedCell = tuple[Count, Count, Count, Count]
_PARTS = Limit(longest=MOST_NAMES)
_PAIRS = Limit(longest=MOST_NAMES**2)
_CELLS = Limit(longest=MOST_CELLS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalTable:
    """How refusals are kept and sent. ``cells``: for two parts, by their places among the
    ``values``, the cells: the places of two values and of the reason, and how many points there
    are. ``outcomes``: what is known of each reason; older versions kept none."""

    values: Annotated[tuple[tuple[Word, Annotated[tuple[AxisValue, ...], _CELLS]], ...], _PARTS]
    reasons: Annotated[tuple[tuple[Word, Text], ...], _CELLS]
    outcomes: OmitDefault[Annotated[tuple[Illegal | OutOfVmem | None, ...], _CELLS]] = ()
    cells: Annotated[
        tuple[tuple[Count, Count, Annotated[tuple[_NumberedCell, ...], _CELLS]], ...], _PAIRS
    ]
    sampled: bool
    left_out: Annotated[tuple[tuple[Word, Word], ...], _PAIRS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """``points`` raw points were looked at, and each was refused before it was compiled. ``kind``
    (of an outcome) and ``reason`` are those of the one that came closest to being compiled,
    ``outcome`` is all of it where that says more."""

    kind: str
    reason: str
    points: int
    outcome: Illegal | OutOfVmem | None = None

    @classmethod
    def by(cls, outcome: Failure, points: int) -> Self:
        known = outcome if isinstance(outcome, Illegal | OutOfVmem) else None
        return cls(kind=outcome.kind, reason=outcome.reason, points=points, outcome=known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """``values`` of each part of a config, under the names of ``config_parts.parts_of``.

    ``cells``: for two parts, in the order of ``values``, their values (as text) with which nothing
    may be compiled; for one part beside itself, the values that are out of the question whatever
    the others are. ``sampled``: not every raw point was looked at. ``left_out``: pairs of which
    nothing is kept, because there would be too many cells.
    """

    form: ClassVar[type[RefusalTable]] = RefusalTable
    values: Mapping[str, Sequence[AxisValue]]
    cells: Mapping[Pair, Mapping[Cell, Refused]] = field(default_factory=dict)
    sampled: bool = False
    left_out: tuple[Pair, ...] = ()

    def of(self, x: str, y: str | None = None) -> Mapping[Cell, Refused]:
        """By the values of ``x`` and ``y``; without ``y`` by that of ``x``, twice."""
        if y is None or (x, y) in self.cells:
            return self.cells.get((x, y or x), {})
        return {(a, b): refused for (b, a), refused in self.cells.get((y, x), {}).items()}

    def is_left_out(self, x: str, y: str | None = None) -> bool:
        """Whether nothing is known of two parts."""
        return bool({(x, y or x), (y or x, x)} & set(self.left_out))

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data, each reason once; ``from_data`` is the inverse."""
        names = list(self.values)
        texts = {name: {str(v): n for n, v in enumerate(self.values[name])} for name in names}
        reasons: dict[tuple[str, str, Illegal | OutOfVmem | None], int] = {}

        def numbered(x: str, y: str, cells: Mapping[Cell, Refused]) -> Iterator[_NumberedCell]:
            for (a, b), cell in cells.items():
                why = cell.kind, cell.reason, cell.outcome
                reason = reasons.setdefault(why, len(reasons))
                yield texts[x][a], texts[y][b], reason, cell.points

        cells = tuple(
            (names.index(x), names.index(y), tuple(numbered(x, y, pair_cells)))
            for (x, y), pair_cells in self.cells.items()
        )
        outcomes = tuple(outcome for *_, outcome in reasons)
        return to_data(
            RefusalTable(
                values=tuple((name, tuple(self.values[name])) for name in names),
                reasons=tuple((kind, reason) for kind, reason, _ in reasons),
                outcomes=outcomes if any(outcomes) else (),
                cells=cells,
                sampled=self.sampled,
                left_out=self.left_out,
            )
        )

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Raises ``ValueError`` for a place where there is nothing, and for too many cells."""
        table = from_data(RefusalTable, data)
        names = [name for name, _ in table.values]
        texts = [list(map(str, values)) for _, values in table.values]
        if sum(len(numbered) for _, _, numbered in table.cells) > MOST_CELLS:
            raise ValueError(f"there must be at most {MOST_CELLS} cells")

        def refused(reason: int, points: int) -> Refused:
            kind, text = table.reasons[reason]
            outcome = table.outcomes[reason] if table.outcomes else None
            return Refused(kind=kind, reason=text, points=points, outcome=outcome)

        try:
            cells = {
                (names[x], names[y]): {
                    (texts[x][a], texts[y][b]): refused(why, n) for a, b, why, n in numbered
                }
                for x, y, numbered in table.cells
            }
        except IndexError as error:
            raise ValueError("there is no value or reason at one of the places") from error
        values = dict(table.values)
        return cls(values=values, cells=cells, sampled=table.sampled, left_out=table.left_out)
