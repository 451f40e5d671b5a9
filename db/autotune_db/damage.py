"""A row that cannot be read costs that row, not the query: it is left out, and logged once."""

import logging
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import Connection, Select

from autotune_db.rows import AnyRow

T = TypeVar("T")

_log = logging.getLogger("autotune.db")


@cache
def _log_once(table: str, number: int, why: str) -> None:
    place = f"row {number} of {table}"
    _log.warning("%s cannot be read and is left out (%s): see autotune db check", place, why)


def readable(
    connection: Connection,
    statement: Select[*tuple[Any, ...]],
    make: Callable[[AnyRow], T],
    tell: Callable[[str, int, str], object] = _log_once,
) -> Iterator[T]:
    """What ``make`` makes of each row. One that cannot be read costs that row: ``tell`` is given
    its table, its number and why."""
    number = statement.selected_columns.get("id")
    table = getattr(number, "table", None)
    for row in connection.execute(statement):
        try:
            if bytes in map(type, row):  # no column has them, but a damaged one of SQLite
                raise ValueError("bytes stand in place of a text")
            made = make(row)
        except Exception as error:  # whatever a value makes of it
            why = f"{type(error).__name__}: {error}"
            tell(table.name if table is not None else "", row._mapping.get("id", 0), why)
        else:
            yield made
