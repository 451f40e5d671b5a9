"""The two parts of a config that the heat map is drawn over, and which of their values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from autotune.domain.refusals import Refusals, Refused
from autotune_service.pages.candidates import ShownTrial
from autotune_service.pages.filters import Query
from autotune_service.pages.plots import ordered, varying

_MOST_VALUES = 75  # of a part, drawn
_MOST_REFUSED = 200  # rows of a table


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """``names``: what may be chosen. ``note``: what is not shown of the cells, or not known;
    ``refused``: what the rules refuse of them, for those who do not hover."""

    names: list[str]
    x: str | None
    y: str | None
    note: str
    refused: list[tuple[str, str, Refused]]


def axes(shown: Sequence[ShownTrial], refusals: Refusals | None, query: Query) -> Axes:
    """Parts of the config with several values, tried or refused; all of them where none has."""
    names = _names(shown, refusals.values if refusals else {})
    x = query.choice("x", names) or (names[0] if names else None)
    rest = [name for name in names if name != x]
    y = query.choice("y", names)
    if y == x:
        y = None
    y = y or (rest[0] if rest else None)
    closed = refusals.of(x, y).items() if refusals and x else ()
    cut = _cut(shown, refusals, [name for name in (x, y) if name])
    return Axes(
        names=names,
        x=x,
        y=y,
        note=" ".join(filter(None, (_unknown(refusals, x, y), cut))),
        refused=[(*cell, one) for cell, one in islice(closed, _MOST_REFUSED)],
    )


def _names(shown: Sequence[ShownTrial], refused: Mapping[str, Sequence[object]]) -> list[str]:
    """Parts of the config with several values, else all."""
    several = {*varying(shown), *(name for name, values in refused.items() if len(values) > 1)}
    known = dict.fromkeys([*refused, *(name for c in shown for name in c.values)])
    return [name for name in known if name in several or not several]


def values_of(found: Sequence[ShownTrial], name: str, refusals: Refusals | None) -> list[str]:
    """Tried or known, in order; of very many those of the fastest trials first."""
    values = _all_values(found, name, refusals)
    if len(values) <= _MOST_VALUES:
        return values
    by_time = sorted(found, key=lambda c: (c.time_us is None, c.time_us))
    tried = dict.fromkeys(str(c.values[name]) for c in by_time if name in c.values)
    chosen = set(list(dict.fromkeys([*tried, *values]))[:_MOST_VALUES])
    return [value for value in values if value in chosen]


def _all_values(found: Sequence[ShownTrial], name: str, refusals: Refusals | None) -> list[str]:
    known = refusals.values.get(name, ()) if refusals else ()
    tried = (c.values[name] for c in found if name in c.values)
    return ordered(name, [*known, *tried], found)


def _cut(shown: Sequence[ShownTrial], refusals: Refusals | None, names: Sequence[str]) -> str:
    counts = {name: len(_all_values(shown, name, refusals)) for name in names}
    return " ".join(
        f"Of {count:,} values of {name} {_MOST_VALUES} are drawn, those of the fastest first."
        for name, count in counts.items()
        if count > _MOST_VALUES
    )


def _unknown(refusals: Refusals | None, x: str | None, y: str | None) -> str:
    if refusals is None:
        return "An older version made this search, and kept nothing of what the rules refuse."
    if x is not None and refusals.is_left_out(x, y):
        return "What the rules refuse is not kept for these two: there are too many cells."
    if refusals.sampled:
        return "The space is large: the rules were asked about a sample of its configs only."
    return ""
