"""What a table of tuned block sizes means, as data: ``tables.toml`` describes those that are known.

A description names the file, the fields of a key and of a value, and the lookup of the library. One
reader, one auditor and one exporter work with any of them.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from autotune.domain.errors import UnknownNameError
from autotune.domain.key import Chip, parse_chip
from autotune.domain.known_config import KnownConfig, named
from autotune.tables.python_source import ConstructorCall
from autotune.tables.table import UNTYPED, Named, TableRow

_FILE = Path(__file__).with_name("tables.toml")
_MOST_ASKED = 10_000  # 128 heads could have come of fewer than a thousand
_EMPTY: tuple[Any, ...] = (None, False, 0)
_NO_KERNEL = "its kernel is not in the catalogue"


class NotInCatalogueError(ValueError):
    """A row that no kernel of the catalogue has a problem for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """The rows of a table that are configs of a ``kernel`` of the catalogue.

    ``problem``: for each part of a problem the fields of a key that say it, all of which have to
    say the same. ``options``: parts of the problem that all these rows have. ``when``: fields of a
    key with the value that these rows have, "None" where that is None; every other field must be
    empty, but for those that match ``anything``.

    ``axes``: the field of a value for each axis, by default all under their own names. ``fixed``:
    fields of a value that the kernel has in one way only. ``at_most``: which field of the key an
    axis is cut to; ``cut``: that of all axes.
    """

    kernel: str
    problem: Mapping[str, str]
    options: Named = field(default_factory=dict)
    when: Named = field(default_factory=dict)
    anything: str = ""
    axes: Mapping[str, str] = field(default_factory=dict)
    fixed: Named = field(default_factory=dict)
    at_most: Mapping[str, str] = field(default_factory=dict)
    cut: str = ""

    def problem_of(self, key: Named) -> Named:
        """Parts of a problem. Raises ``NotInCatalogueError``."""
        names = {part: fields.split() for part, fields in self.problem.items()}
        used = {*self.when, self.cut, *self.at_most.values(), *chain(*names.values())}
        if lacking := [name for name in chain(*names.values()) if name not in key]:
            raise NotInCatalogueError(f"it does not say {', '.join(lacking)}")
        wrong = [f"{n}={key[n]}" for n, only in self.when.items() if key.get(n, only) != only]
        wrong += [
            f"{name}={value}"
            for name, value in key.items()
            if name not in used
            and value not in _EMPTY
            and not any(fnmatch(name, pattern) for pattern in self.anything.split())
        ]
        wrong += [
            " with ".join(f"{name}={key[name]}" for name in fields)
            for fields in names.values()
            if len({key[name] for name in fields}) > 1
        ]
        if wrong:
            raise NotInCatalogueError(f"{', '.join(wrong)} is not in the catalogue")
        return {part: key[fields[0]] for part, fields in names.items()} | self.options

    def axes_of(self, key: Named, value: Named) -> Named:
        """Raises ``NotInCatalogueError``."""
        for name, only in self.fixed.items():
            if value.get(name, only) != only:
                raise NotInCatalogueError(f"the catalogue has no {name}={value[name]}")
        lacking = [name for name in self._names(value).values() if name not in value]
        if lacking:
            raise NotInCatalogueError(f"its config has no {', '.join(lacking)}")
        axes = {axis: value[name] for axis, name in self._names(value).items()}
        limits = {**dict.fromkeys(axes if self.cut else (), self.cut), **self.at_most}
        return axes | {axis: min(axes[axis], key[limit]) for axis, limit in limits.items()}

    def is_plain(self, value: Named) -> bool:
        """Whether the kernel is called so: with nothing but its axes."""
        used = {*self.fixed, *self._names(value).values()}
        return all(name in used or content in _EMPTY for name, content in value.items())

    def _names(self, value: Named) -> Mapping[str, str]:
        return self.axes or {name: name for name in value if name not in self.fixed}

    def key_of(self, problem: Named) -> Named | None:
        """Fields of the key, None for a problem that these rows do not have."""
        if any(problem.get(name) != value for name, value in self.options.items()):
            return None
        fields = {n: problem[part] for part, names in self.problem.items() for n in names.split()}
        return {**self.when, **fields}

    def value_of(self, axes: Named) -> Named:
        """Fields of a value; those that are ``fixed`` too."""
        return {self.axes.get(axis, axis): size for axis, size in axes.items()} | self.fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """``file``: a pattern, below site-packages. ``since``: the oldest release in which that was
    read. ``syntax``: of the file: *python*, *cache* (tokamax), *flags* (YAML), or our own.

    ``variable``: what the table is assigned to; ``looked_up``: what the lookup asks, where that is
    another. ``key``: for each dictionary the fields of its keys, a text with fields in braces, or a
    class. ``value``: its fields, or a class; one with ``?`` may be left out. ``quotient``: a field
    that is that of two others. ``device``: the field that names the TPU, ``chips``: what its
    values mean. ``kernels``: what rows mean in the catalogue; other rows are known under the name
    of the table.

    ``lookup``: the function that finds a row, ``given``: arguments that are no part of the key,
    ``rounded``: fields of the key that the lookup may have rounded up. ``used_outside``: the folder
    of kernels, outside of which some module has to use the lookup.
    """

    name: str
    file: str
    since: str = ""
    syntax: str = "python"
    variable: str = ""
    looked_up: str = ""
    key: Sequence[str] = ()
    value: str = ""
    quotient: str = ""
    device: str = ""
    chips: Mapping[str, str] = field(default_factory=dict)
    kernels: Sequence[Meaning] = ()
    lookup: str = "get_tuned_block_sizes"
    given: Named = field(default_factory=dict)
    rounded: str = ""
    used_outside: str = ""

    @property
    def module(self) -> str:
        return self.file.removesuffix(".py").replace("/", ".") if self.syntax == "python" else ""

    @property
    def classes(self) -> list[str]:
        return [name for name in (*self.key, self.value) if is_class(name)]

    def chips_of(self, key: Named) -> tuple[Chip, ...]:
        """The TPUs that a row is for; none where the table does not say, or names another."""
        name = str(key.get(self.device) or "")
        if name and not self.chips:
            try:
                return (parse_chip(name),)
            except UnknownNameError:
                return ()
        return tuple(map(Chip, self.chips.get(name, "").split()))

    def is_for(self, key: Named, chip: Chip) -> bool:
        return not key.get(self.device) or chip in self.chips_of(key)

    def configs(self, row: TableRow) -> tuple[list[KnownConfig], str]:
        """A config for each kernel of the catalogue that the row is for. Where there is none: one
        of a kernel of the table's name, in its words, and the reason. Raises ``ValueError`` for
        values of another type."""
        try:
            try:
                return self.known(row), ""
            except NotInCatalogueError as error:
                key = {n: _plain(value) for n, value in row.key.items() if n != self.device}
                axes = {name: _plain(value) for name, value in row.value.items()}
                return [self._config(row, self.name, key, axes, row.time_us)], str(error)
        except UNTYPED as error:
            raise ValueError(f"its values are not those of {self.name}: {error!s:.200}") from error

    def known(self, row: TableRow) -> list[KnownConfig]:
        """Raises ``NotInCatalogueError`` where no kernel of the catalogue has the row."""
        key, known, wrong = self._with_quotient(row.key), list[KnownConfig](), list[str]()
        if row.key.get(self.device) and not self.chips_of(row.key):
            raise NotInCatalogueError(f"{row.key[self.device]!r} is no TPU that is known")
        for meaning in self.kernels:
            if meaning.axes and not {*meaning.axes.values()} & {*row.value}:
                continue  # values of another kernel
            try:
                problem, axes = meaning.problem_of(key), meaning.axes_of(key, row.value)
            except NotInCatalogueError as error:
                wrong.append(str(error))
            else:
                time_us = row.time_us if meaning.is_plain(row.value) else None
                known.append(self._config(row, meaning.kernel, problem, axes, time_us))
        if not known:
            raise NotInCatalogueError(min(wrong, key=len, default=_NO_KERNEL))
        return known

    def _config(
        self, row: TableRow, kernel: str, problem: Named, axes: Named, time_us: float | None
    ) -> KnownConfig:
        return KnownConfig(
            kernel=kernel,
            problem=tuple(problem.items()),
            chips=self.chips_of(row.key),
            axes=tuple(axes.items()),
            source=f"{self.name} {row.place}",
            time_us=time_us,
        )

    def _with_quotient(self, key: Named) -> Named:
        rest = {name: value for name, value in key.items() if name != self.device}
        if self.quotient:
            name, whole, part = self.quotient.split()
            rest[name], remainder = divmod(key[whole], key[part])
            if remainder or not rest[name]:
                raise NotInCatalogueError(f"{key[whole]} keys are not whole pages of {key[part]}")
        return rest

    def problems_of(self, key: Named) -> dict[str, Named]:
        """By kernel of the catalogue, those that a lookup is asked for with this key."""
        problems: dict[str, Named] = {}
        for meaning in self.kernels:
            with suppress(NotInCatalogueError):
                problems[meaning.kernel] = meaning.problem_of(key)
        return problems

    def asks(self, row: TableRow) -> list[Named]:
        """Arguments of the library's lookup, any of which should lead to the row; none where its
        values are of no use for a question."""
        key = {name: value for name, value in row.key.items() if name != self.device}
        if is_class(self.key[0]):
            return [{"tuning_key": ConstructorCall(self.key[0], tuple(key.items()))}]
        try:
            if self.quotient:
                name, whole, part = self.quotient.split()
                key[name] = -(-key.pop(whole) // key[part])
            return [{**key, **preimage, **self.given} for preimage in self._preimages(key)]
        except UNTYPED:
            return []

    def _preimages(self, key: Named) -> Iterator[Named]:
        """Whatever could have been rounded up to these fields: the later ones in whole multiples of
        the first, as heads are of heads that they share."""
        if not self.rounded:
            return iter([{}])
        first, second = self.rounded.split()
        pairs = (
            {first: low, second: low * group}
            for low in range(key[first], 0, -1)
            for group in range(key[second] // low, 0, -1)
        )
        return (pair for pair, _ in zip(pairs, range(_MOST_ASKED), strict=False))

    def rows_of(self, config: KnownConfig) -> list[tuple[Named, Named]]:
        """Keys and values that say it: the inverse of ``configs``. Raises
        ``NotInCatalogueError`` where the table has no place for it."""
        problem, axes = dict(config.problem), dict(config.axes)
        if config.kernel == self.name:
            fields, value = ({n: _unplain(v) for n, v in part.items()} for part in (problem, axes))
            return [(self._with_device(fields, config), value)]
        rows = []
        for meaning in self.kernels:
            key = meaning.key_of(problem) if meaning.kernel == config.kernel else None
            if key is None:
                continue
            name, whole, part = self.quotient.split() or ("", "", "")
            if name in key:
                key[whole] = key.pop(name) * key[part]
            optional = {field[:-1] for field in self.value.split() if field.endswith("?")}
            value = {n: v for n, v in meaning.value_of(axes).items() if n not in optional}
            rows.append((self._with_device(key, config), value))
        if not rows:
            raise NotInCatalogueError(f"{self.name} has no place for {named(config.problem)}")
        return rows

    def _with_device(self, key: Named, config: KnownConfig) -> Named:
        if not (self.device and self.chips):
            return key
        chips = {chip: name for name, chips in self.chips.items() for chip in chips.split()}
        if not config.chips or config.chips[0].value not in chips:
            raise NotInCatalogueError(f"{self.name} has no name for {', '.join(config.chips)}")
        name = chips[config.chips[0].value]
        return {**key, self.device: int(name) if name.isdigit() else name}

    def takes(self, kernel: str) -> bool:
        """Whether it has a place for configs of this kernel."""
        return kernel in {self.name, *(meaning.kernel for meaning in self.kernels)}


def is_class(level: str) -> bool:
    return level[:1].isupper() and level.isalnum()


def _plain(value: Any) -> int | str | bool:
    return value if isinstance(value, (int, str, bool)) else str(value)


def _unplain(value: Any) -> Any:
    return None if value == "None" else value


def _described() -> Iterator[Description]:
    tables: dict[str, Named] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    for name, table in tables.items():
        whole = {**tables.get(table.pop("like", ""), {}), **table}
        tables[name] = whole
        kernels: list[Named] = []
        for meaning in whole.get("kernels", ()):
            like = meaning.get("like")
            base = {} if like is None else kernels[like]
            when = {name: _unplain(value) for name, value in meaning.get("when", {}).items()}
            parts = {name: value for name, value in meaning.items() if name != "like"}
            kernels.append({**base, **parts, "when": when or base.get("when", {})})
        meanings = tuple(Meaning(**meaning) for meaning in kernels)
        yield Description(name=name, **{**whole, "kernels": meanings})


@cache
def descriptions() -> Sequence[Description]:
    """All; a model of other packages starts without reading them."""
    return tuple(_described())


def described(name: str) -> Description:
    """``KeyError`` where there is none of this name."""
    return {table.name: table for table in descriptions()}[name]
