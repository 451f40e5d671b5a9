"""What a table holds, and what can be asked of its format."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from autotune.domain.codec import ByName
from autotune.domain.known_config import KnownConfig

UNTYPED = TypeError, ValueError, LookupError, ArithmeticError, RecursionError, AttributeError
"""What comes of values that a stranger wrote, where those of the format are expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """``key`` and ``value`` by the names of their fields. ``path``: the keys of the dictionaries
    that lead to it, as the table has them. ``time_us``: where the table has one."""

    place: str
    key: ByName[Any]
    value: ByName[Any]
    path: tuple[Any, ...] = ()
    time_us: float | None = None

    def __getitem__(self, name: str) -> Any:
        """A field of the key."""
        return dict(self.key)[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadRow:
    """What cannot be read, or says nothing: where it is, and why."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """``file``: where it was read."""

    file: str
    rows: Sequence[TableRow]
    unread: Sequence[UnreadRow] = ()

    @classmethod
    def of(cls, file: str, parts: Iterable[TableRow | UnreadRow]) -> Self:
        rows: list[TableRow] = []
        unread: list[UnreadRow] = []
        for part in parts:
            if isinstance(part, TableRow):
                rows.append(part)
            else:
                unread.append(part)
        return cls(file=file, rows=rows, unread=unread)


class TableFormat(Protocol):
    """One kind of table. ``file``: where its package has it; a pattern, below site-packages."""

    @property
    def name(self) -> str: ...

    @property
    def file(self) -> str: ...

    def read(self, text: str, file: str) -> Table:
        """All that ``text`` holds. Raises ``InvalidInputError`` where it is no such table."""

    def known(self, row: TableRow) -> KnownConfig | str:
        """The row in the words of the catalogue, or why it has none there."""

    def row(self, known: KnownConfig) -> TableRow | str:
        """The inverse of ``known``, or why the format has no place for it."""

    def write(self, text: str, rows: Sequence[TableRow]) -> str:
        """``text`` with these rows in the place of those with the same keys, or beside them."""


def meaning(form: TableFormat, row: TableRow) -> KnownConfig | str:
    """``known`` of a row of whatever values."""
    try:
        return form.known(row)
    except UNTYPED as error:
        return f"its values are not those of {form.name}: {str(error)[:200]}"
