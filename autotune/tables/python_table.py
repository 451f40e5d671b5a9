"""Tables that are a dictionary in Python source: what their keys and values mean is data."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip
from autotune.domain.known_config import KnownConfig, named
from autotune.tables.python_source import ConstructorCall, Entry, entries, variables, with_rows
from autotune.tables.table import UNTYPED, Table, TableRow, UnreadRow

Named = dict[str, Any]
Level = tuple[str, ...] | re.Pattern[str]
_TUNED = re.compile(r"tuned|block|tile|config|param", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """A row in the words of the catalogue: parts of a problem, and axes."""

    problem: Named
    axes: Named


class Vocabulary(Protocol):
    """Between the rows of a table and the problems of the catalogue."""

    def problem(self, key: Named, value: Named) -> Meaning | str:
        """What a row says, or why the catalogue cannot have it."""

    def row(self, problem: Named, axes: Named) -> tuple[Named, Named] | str:
        """Key and value, or why the table cannot have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldNames:
    """A ``Vocabulary`` in which nothing is computed.

    ``fields``: for each part of a problem the fields of a key that say it, all of which have to
    say the same. ``dtypes``: what they call a dtype, where not by its name. ``fixed``: fields of a
    value that the kernel of the catalogue has in one way only.
    """

    fields: Mapping[str, Sequence[str]]
    dtypes: Mapping[Any, str] = field(default_factory=dict)
    fixed: Named = field(default_factory=dict)

    def problem(self, key: Named, value: Named) -> Meaning | str:
        for names in self.fields.values():
            if len({key[name] for name in names}) > 1:
                said = " with ".join(f"{name}={key[name]}" for name in names)
                return f"{said} is not in the catalogue"
        for name, only in self.fixed.items():
            if value.get(name, only) != only:
                return f"the catalogue has no {name}={value[name]}"
        problem = {part: key[names[0]] for part, names in self.fields.items()}
        if self.dtypes:
            if problem["dtype"] not in self.dtypes:
                return f"{self.fields['dtype'][0]}={problem['dtype']} is not in the catalogue"
            problem["dtype"] = self.dtypes[problem["dtype"]]
        axes = {name: size for name, size in value.items() if name not in self.fixed}
        return Meaning(problem=problem, axes=axes)

    def row(self, problem: Named, axes: Named) -> tuple[Named, Named]:
        theirs = {dtype: name for name, dtype in self.dtypes.items()}
        said = {part: theirs.get(problem[part], problem[part]) for part in self.fields}
        key = {name: said[part] for part, names in self.fields.items() for name in names}
        return key, {**axes, **self.fixed}


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonTable:
    """Implements ``TableFormat``.

    ``variable`` of ``module`` is read; its ``function`` looks up in ``looked_up``, where that is
    another. ``levels``: for each dictionary the fields of its keys, or a pattern that has them as
    groups. ``device``: which field names the TPU; ``chips``: what its values mean. ``kernel``: of
    the catalogue, with the ``vocabulary`` between both. ``preimages``: other keys that the lookup
    could round to this one. ``given``: arguments of the lookup that are no part of the key.
    ``key_class`` and ``value_class``: where keys and values are of classes.
    """

    name: str
    module: str
    variable: str
    levels: tuple[Level, ...]
    value: tuple[str, ...]
    device: str = ""
    chips: Mapping[Any, tuple[Chip, ...]] = field(default_factory=dict)
    kernel: str = ""
    absent: str = "the kernel is not in the catalogue"
    vocabulary: Vocabulary | None = None
    function: str = "get_tuned_block_sizes"
    looked_up: str = ""
    preimages: Callable[[Named], Sequence[Named]] = lambda key: [key]
    given: Named = field(default_factory=dict)
    key_class: str = ""
    value_class: str = ""
    optional: int = 0
    """Fields at the end of a value that need not be there."""

    @property
    def _required(self) -> tuple[str, ...]:
        return self.value[: len(self.value) - self.optional]

    @property
    def file(self) -> str:
        return self.module.replace(".", "/") + ".py"

    def read(self, text: str, file: str) -> Table:
        leaves, unread = entries(text, self.variable, file)
        return Table.of(file, [*unread, *map(self._row, leaves)])

    def _row(self, entry: Entry) -> TableRow | UnreadRow:
        try:
            key = _flat(entry.path, self.levels, self.key_class)
            value = _fields(entry.value, self.value, self.value_class, self.optional)
        except ValueError as error:
            return UnreadRow(place=entry.place, reason=str(error))
        return TableRow(
            place=entry.place, key=tuple(key.items()), value=tuple(value.items()), path=entry.path
        )

    def known(self, row: TableRow) -> KnownConfig | str:
        if self.vocabulary is None:
            return self.absent
        key, value = dict(row.key), dict(row.value)
        chips = tuple(self.chips_of(row))
        if self.device and not chips:
            return f"{key[self.device]!r} is no TPU that is known"
        meaning = self.vocabulary.problem(key, value)
        if isinstance(meaning, str):
            return meaning
        return KnownConfig(
            kernel=self.kernel,
            problem=tuple(meaning.problem.items()),
            chips=chips,
            axes=tuple(meaning.axes.items()),
            source=f"{self.name} {row.place}",
        )

    def chips_of(self, row: TableRow) -> Sequence[Chip]:
        """The TPUs that a row is for; none where the table does not say."""
        return self.chips.get(row[self.device], ()) if self.device else ()

    def leaf(self, row: TableRow) -> Any:
        """The value of a row as the table has it."""
        if self.value_class:
            return ConstructorCall(self.value_class, row.value)
        return tuple(part for _, part in row.value)

    def valued(self, row: TableRow, leaf: Any) -> TableRow:
        """The row with another value, of whatever class. Raises ``ValueError``."""
        made = leaf.name if isinstance(leaf, ConstructorCall) else ""
        return replace(row, value=tuple(_fields(leaf, self.value, made, self.optional).items()))

    def difference(self, row: TableRow, path: tuple[Any, ...]) -> str:
        """Where the key at ``path`` differs from that of the row."""
        try:
            asked = _flat(path, self.levels, self.key_class)
        except ValueError:
            return str(path)
        return named((n, v) for n, v in asked.items() if n not in dict(row.key) or row[n] != v)

    def asks(self, row: TableRow) -> Sequence[Named]:
        """Arguments of the library's lookup, any of which should lead to the row; none where its
        values are of no use for a question."""
        key = {name: value for name, value in row.key if name != self.device}
        if self.key_class:
            return [{"tuning_key": ConstructorCall(self.key_class, tuple(key.items()))}]
        try:
            return [{**preimage, **self.given} for preimage in self.preimages(key)]
        except UNTYPED:
            return []

    def row(self, known: KnownConfig) -> TableRow | str:
        if self.vocabulary is None:
            return f"{self.name} cannot be written: {self.absent}"
        pair = self.vocabulary.row(dict(known.problem), dict(known.axes))
        if isinstance(pair, str):
            return pair
        key, value = pair
        if extra := value.keys() - {*self.value}:
            return f"a row of {self.name} has no place for {', '.join(sorted(extra))}"
        if self.device:
            names = [name for name, chips in self.chips.items() if known.chips[0] in chips]
            if not names:
                return f"{self.name} has no name for {known.chips[0]}"
            key = {**key, self.device: names[0]}
        return TableRow(
            place=known.source,
            key=tuple(key.items()),
            value=tuple((name, value[name]) for name in self._required),
            path=tuple(_nested(key, self.levels, self.key_class)),
        )

    def write(self, text: str, rows: Sequence[TableRow]) -> str:
        return with_rows(text, self.variable, [(row.path, self.leaf(row)) for row in rows])


def generic(text: str, file: str) -> PythonTable:
    """For tables that nobody declared here: they are listed, by places of their fields. Raises
    ``InvalidInputError``."""
    names = [name for name in variables(text, file) if _TUNED.search(name)]
    if not names:
        raise InvalidInputError(f"{file} has no dictionary that is called like a table of configs")
    return _Generic(
        name="unknown",
        module="",
        variable=",".join(names),
        levels=(),
        value=(),
        absent="what its fields mean is not known here",
    )


class _Generic(PythonTable):
    """``variable``: all that are called like a table."""

    __slots__ = ()

    def read(self, text: str, file: str) -> Table:
        names = self.variable.split(",")
        tables = [PythonTable.read(replace(self, variable=name), text, file) for name in names]
        rows = [row for table in tables for row in table.rows]
        return Table(file=file, rows=rows, unread=[row for table in tables for row in table.unread])

    def _row(self, entry: Entry) -> TableRow | UnreadRow:
        key = [part for level in entry.path for part in _parts(level)]
        return TableRow(
            place=entry.place,
            key=tuple(_numbered(key)),
            value=tuple(_numbered(_parts(entry.value))),
            path=entry.path,
        )


def _numbered(parts: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    return ((name or str(place), value) for place, (name, value) in enumerate(parts))


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, ConstructorCall):
        return list(value.fields)
    return [("", part) for part in value] if isinstance(value, tuple) else [("", value)]


def _flat(path: tuple[Any, ...], levels: Sequence[Level], made: str) -> Named:
    """Raises ``ValueError`` with the reason."""
    if len(path) != len(levels):
        raise ValueError(f"it stands in {len(path)} dictionaries, not in {len(levels)}")
    key: Named = {}
    for part, level in zip(path, levels, strict=True):
        if isinstance(level, re.Pattern):
            key |= _matched(part, level)
        else:
            key |= _fields(part, level, made)
    return key


def _matched(part: Any, pattern: re.Pattern[str]) -> Named:
    match = pattern.fullmatch(part) if isinstance(part, str) else None
    if match is None:
        raise ValueError(f"the key {part!r} is not of the form {pattern.pattern}")
    return {name: _number(text) for name, text in match.groupdict().items()}


def _number(text: str) -> Any:
    return None if text == "None" else int(text) if text.isascii() and text.isdigit() else text


def _fields(value: Any, names: Sequence[str], made: str, optional: int = 0) -> Named:
    """``made``: the one class that may be called for it: a library calls what stands there."""
    parts = _parts(value)
    is_theirs = {name for name, _ in parts} <= {*names, ""}
    if isinstance(value, ConstructorCall) and not (value.name == made and is_theirs):
        raise ValueError(f"{value!r} is no {made or 'plain value'} of its format")
    if any(isinstance(part, (ConstructorCall, tuple)) for _, part in parts):
        raise ValueError(f"{value!r} has fields that are no plain values")
    if not len(names) - optional <= len(parts) <= len(names):
        raise ValueError(f"{value!r} has {len(parts)} fields, not {len(names)}")
    return {name or names[place]: part for place, (name, part) in enumerate(parts)}


def _nested(key: Named, levels: Sequence[Level], made: str) -> Iterator[Any]:
    """The keys of the dictionaries that lead to a row."""
    for level in levels:
        if isinstance(level, re.Pattern):
            yield re.sub(r"\(\?P<(\w+)>.*?\)", lambda match: str(key[match[1]]), level.pattern)
        elif made:
            yield ConstructorCall(made, tuple((name, key[name]) for name in level))
        else:
            yield key[level[0]] if len(level) == 1 else tuple(key[name] for name in level)
