"""What is read of a table."""

from dataclasses import dataclass
from typing import Any

UNTYPED = TypeError, ValueError, LookupError, ArithmeticError, RecursionError, AttributeError
"""What comes of values that a stranger wrote, where those of the format are expected."""

Named = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """``key`` and ``value`` by the names of their fields. ``path``: the keys of the dictionaries
    that lead to it, as the table has them. ``time_us``: where the table has one."""

    place: str
    key: Named
    value: Named
    path: tuple[Any, ...] = ()
    time_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadRow:
    """What cannot be read, or says nothing: where it is, and why."""

    place: str
    reason: str
