"""Rows of a dictionary in Python source, by the names of their fields."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from autotune.tables.description import Description, is_class
from autotune.tables.python_source import ConstructorCall, Entry, entries, with_rows
from autotune.tables.table import Named, TableRow, UnreadRow

_FIELD = re.compile(r"\{(\w+)\}")


def read_python(table: Description, text: str, file: str) -> Iterator[TableRow | UnreadRow]:
    """Raises ``InvalidInputError`` where ``text`` is no such table."""
    leaves, unread = entries(text, table.variable, file)
    yield from unread
    for entry in leaves:
        yield _row(table, entry)


def _row(table: Description, entry: Entry) -> TableRow | UnreadRow:
    try:
        key = _flat(entry.path, table.key)
        value = valued(table, entry.value)
    except ValueError as error:
        return UnreadRow(place=entry.place, reason=str(error))
    return TableRow(place=entry.place, key=key, value=value, path=entry.path)


def write_python(table: Description, text: str, rows: Sequence[TableRow]) -> str:
    """``text`` with these rows in the place of those with the same keys, or beside them."""
    return with_rows(text, table.variable, [(row.path, leaf(table, row)) for row in rows])


def leaf(table: Description, row: TableRow) -> Any:
    """The value of a row as the table has it."""
    if is_class(table.value):
        return ConstructorCall(table.value, tuple(row.value.items()))
    ordered = [row.value[name] for name in _names(table.value) if name in row.value]
    return tuple(ordered) if set(" ,") & {*table.value} else ordered[0]


def valued(table: Description, leaf: Any, *, made: bool = False) -> Named:
    """Its fields. ``made``: by a lookup, which may give them in a class of its own. Raises
    ``ValueError``."""
    if made and isinstance(leaf, ConstructorCall):
        return dict(leaf.fields)
    return _fields(leaf, table.value)


def path_of(table: Description, key: Named) -> tuple[Any, ...]:
    """The keys of the dictionaries that lead to a row."""
    return tuple(_part(level, key) for level in table.key)


def _part(level: str, key: Named) -> Any:
    if "{" in level:
        return _FIELD.sub(lambda match: str(key.get(match[1])), level)
    if is_class(level):
        return ConstructorCall(level, tuple(key.items()))
    names = [name for name in _names(level) if name in key]
    return tuple(key[name] for name in names) if " " in level else key[level]


def difference(table: Description, row: TableRow, path: tuple[Any, ...]) -> Named:
    """The fields of the key at ``path`` that differ from those of the row. Raises ``ValueError``
    for another number of them."""
    asked = _flat(path, table.key)
    return {name: v for name, v in asked.items() if row.key.get(name, ...) != v}


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, ConstructorCall):
        return list(value.fields)
    return [("", part) for part in value] if isinstance(value, tuple) else [("", value)]


def _names(level: str) -> list[str]:
    return re.findall(r"[^ ,?]+", level)


def _flat(path: tuple[Any, ...], levels: Sequence[str]) -> Named:
    """Raises ``ValueError`` with the reason."""
    if len(path) != len(levels):
        raise ValueError(f"it stands in {len(path)} dictionaries, not in {len(levels)}")
    key: Named = {}
    for part, level in zip(path, levels, strict=True):
        key |= _matched(part, level) if "{" in level else _fields(part, level)
    return key


def _matched(part: Any, level: str) -> Named:
    pattern = _FIELD.sub(r"(?P<\1>\\w+?)", level)
    match = re.fullmatch(pattern, part) if isinstance(part, str) else None
    if match is None:
        raise ValueError(f"the key {part!r} is not of the form {level}")
    return {name: _number(text) for name, text in match.groupdict().items()}


def _number(text: str) -> Any:
    return None if text == "None" else int(text) if text.isascii() and text.isdigit() else text


def _fields(value: Any, level: str) -> Named:
    """``level``: the names of all fields, or the one class that may be called for it: a library
    calls what stands there."""
    parts = _parts(value)
    if any(isinstance(part, (ConstructorCall, tuple)) for _, part in parts):
        raise ValueError(f"{value!r} has fields that are no plain values")
    if is_class(level) or isinstance(value, ConstructorCall):
        if not (isinstance(value, ConstructorCall) and value.name == level):
            raise ValueError(f"{value!r} is no {level if is_class(level) else 'plain value'}")
        return dict(value.fields)
    names = _names(level)
    if not len(names) - level.count("?") <= len(parts) <= len(names):
        raise ValueError(f"{value!r} has {len(parts)} fields, not {len(names)}")
    return {name: part for name, (_, part) in zip(names, parts, strict=False)}
