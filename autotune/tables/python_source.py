"""Dictionaries in Python source: read and changed with ``ast``, never executed."""

import ast
import operator
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from autotune.domain.errors import InvalidInputError
from autotune.tables.table import UnreadRow

_SUMS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_LARGEST = 2**63
_DEEPEST = 8  # dictionaries in dictionaries


@dataclass(frozen=True, slots=True, eq=False)
class ConstructorCall:
    """A call of a class with plain fields, as source has it: ``TuningKey(case="mixed")``. The order
    of the fields is no part of what it says."""

    name: str
    fields: tuple[tuple[str, Any], ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConstructorCall):
            return NotImplemented
        return (self.name, dict(self.fields)) == (other.name, dict(other.fields))

    def __hash__(self) -> int:
        return hash((self.name, frozenset(self.fields)))

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.fields)})"

    __repr__ = __str__


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A leaf: the keys that lead to it, the value and its line."""

    path: tuple[Any, ...]
    value: Any
    line: int

    @property
    def place(self) -> str:
        return f"line {self.line}"


class _UnreadableError(Exception):
    """Not a plain value."""


def entries(text: str, variable: str, file: str) -> tuple[list[Entry], list[UnreadRow]]:
    """The leaves of the dictionary that ``variable`` is assigned. Of equal keys the last counts, as
    Python has it; those before are not read. Raises ``InvalidInputError``."""
    tree = _parsed(text, file)
    assigned = _assignments(tree).get(variable)
    if assigned is None:
        raise InvalidInputError(f"{file} assigns no dictionary to {variable}")
    try:
        leaves = list(_leaves(assigned, (), _classes(tree)))
    except RecursionError as error:
        raise InvalidInputError(f"{file} has an expression that is too long") from error
    read = [leaf for leaf in leaves if isinstance(leaf, Entry)]
    return read, [leaf for leaf in leaves if isinstance(leaf, UnreadRow)]


def imports_of(text: str, module: str, importer: str, name: str = "") -> bool:
    """Whether the source of the module ``importer`` imports ``module``, or something of it: what is
    called ``name``, where that is given."""
    parent, _, leaf = module.rpartition(".")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(part.name == module for part in node.names):
            return True
        if isinstance(node, ast.ImportFrom):
            base = importer.split(".")[: -node.level] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            names = {part.name for part in node.names}
            if (source == module and (not name or names & {name, "*"})) or (
                source == parent and leaf in names
            ):
                return True
    return False


def with_rows(text: str, variable: str, rows: Sequence[tuple[tuple[Any, ...], Any]]) -> str:
    """Source with these leaves in the assignment of ``variable``: each in the place of that with
    the same keys, else as the last of its dictionary. Nothing else changes, nor does a row that
    says the same already."""
    for path, value in rows:
        text = _with_row(text, variable, path, value)
    return text


def _with_row(text: str, variable: str, path: tuple[Any, ...], value: Any) -> str:
    tree = _parsed(text, variable)
    node: ast.expr = _assignments(tree)[variable]
    classes = _classes(tree)
    for depth, key in enumerate(path):
        place = next((n for k, n in _pairs(node, classes) if k == key), None)
        if place is None:
            return _inserted(text, node, path[depth:], value, classes)
        node = place
    is_same = _plain_or_dots(node, classes) == value
    start, end = _offsets(text, node)
    return text if is_same else text[:start] + repr(value) + text[end:]


def _pairs(node: ast.expr, classes: dict[str, dict[str, Any]]) -> Iterator[tuple[Any, ast.expr]]:
    """The last of equal keys first: it is the one that counts."""
    if not isinstance(node, ast.Dict):
        raise InvalidInputError(
            f"line {node.lineno} is no dictionary: the key of a row leads there"
        )
    for key, value in reversed(list(zip(node.keys, node.values, strict=True))):
        plain = ... if key is None else _plain_or_dots(key, classes)
        if plain is not ...:
            yield plain, value


def _inserted(
    text: str, node: ast.expr, path: Sequence[Any], value: Any, classes: dict[str, dict[str, Any]]
) -> str:
    """In order where the others are, else behind the last; indented as the first, quoted as most
    are."""
    assert isinstance(node, ast.Dict)
    for key in reversed(path[1:]):
        value = {key: value}
    new = f"{path[0]!r}: {value!r},"
    if '"' not in new and text.count('"') > text.count("'"):  # it has one where a value has quotes
        new = new.replace("'", '"')
    start, end = _offsets(text, node)
    if not node.keys:
        before = text[text.rfind("\n", 0, start) + 1 : start]
        margin = " " * (len(before) - len(before.lstrip(" ")))
        return f"{text[:start]}{{\n{margin}    {new}\n{margin}}}{text[end:]}"
    place = _place([key and _plain_or_dots(key, classes) for key in node.keys], path[0])
    follower = node.keys[place + 1] if place + 1 < len(node.keys) else None
    after = _offsets(text, node.values[place])[1]
    brace = _offsets(text, follower)[0] if follower else end - 1
    after += _code(text[after:brace]).rfind(")") + 1  # plain parentheses are no part of a node
    if "," not in _code(text[after:brace]):
        text, brace = f"{text[:after]},{text[after:]}", brace + 1
    line = text.find("\n", after, brace)
    if line < 0:
        return f"{text[:brace].rstrip()} {new}{' ' * bool(follower)}{text[brace:]}"
    column = next((key.col_offset for key in node.keys if key is not None), 4)
    return f"{text[: line + 1]}{' ' * column}{new}\n{text[line + 1 :]}"


def _place(keys: Sequence[Any], new: Any) -> int:
    """Behind which key: of the last two that it lies between, where few are out of order."""
    order, *ordered = (
        [(part is not None, part) for part in (key if isinstance(key, tuple) else (key,))]
        for key in (new, *keys)
    )
    fits: list[int] = []
    with suppress(TypeError):
        if sum(map(operator.gt, ordered, ordered[1:])) * 10 <= len(keys):
            fits = [n for n, (low, high) in enumerate(pairwise(ordered)) if low < order < high]
    return fits[-1] if fits else len(keys) - 1


def _code(text: str) -> str:
    """With blanks in the place of comments."""
    return re.sub(r"#[^\n]*", lambda match: " " * len(match[0]), text)


def _offsets(text: str, node: ast.expr) -> tuple[int, int]:
    """In characters: ``ast`` counts columns in UTF-8 bytes, and a form feed ends no line."""
    lines = text.split("\n")

    def offset(line: int, column: int) -> int:
        whole = sum(map(len, lines[: line - 1])) + line - 1
        return whole + len(lines[line - 1].encode()[:column].decode())

    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)


def _parsed(text: str, file: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        why = f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        why = str(error) or type(error).__name__
    raise InvalidInputError(f"{file} is no Python source: {why}")


def _assignments(tree: ast.Module) -> dict[str, ast.Dict]:
    assigned: dict[str, ast.Dict] = {}
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            assigned |= {t.id: node.value for t in targets if isinstance(t, ast.Name)}
    return assigned


def _classes(tree: ast.Module) -> dict[str, dict[str, Any]]:
    return {node.name: _defaults(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _defaults(node: ast.ClassDef) -> dict[str, Any]:
    """The fields of a dataclass in their order; ``...`` where one has no plain default."""
    defaults: dict[str, Any] = {}
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            value = line.value
            defaults[line.target.id] = ... if value is None else _plain_or_dots(value, {})
    return defaults


def _leaves(
    node: ast.Dict, path: tuple[Any, ...], classes: dict[str, dict[str, Any]]
) -> Iterator[Entry | UnreadRow]:
    keys: list[Any] = []
    for key, value in zip(node.keys, node.values, strict=True):
        try:
            if key is None:
                raise _UnreadableError("** takes in another dictionary")
            keys.append(_plain(key, classes))
        except _UnreadableError as error:
            keys.append(error)
            yield UnreadRow(place=f"line {(key or value).lineno}", reason=str(error))
    last = {key: place for place, key in enumerate(keys)}
    for place, (key, value) in enumerate(zip(keys, node.values, strict=True)):
        if isinstance(key, _UnreadableError):
            continue
        leaves = _leaf((*path, key), value, classes)
        if last[key] != place:
            why = f"line {node.values[last[key]].lineno} has the same key again, which counts"
            leaves = (UnreadRow(place=leaf.place, reason=why) for leaf in leaves)
        yield from leaves


def _leaf(
    path: tuple[Any, ...], value: ast.expr, classes: dict[str, dict[str, Any]]
) -> Iterator[Entry | UnreadRow]:
    if isinstance(value, ast.Dict) and len(path) <= _DEEPEST:
        yield from _leaves(value, path, classes)
        return
    try:
        yield Entry(path=path, value=_plain(value, classes), line=value.lineno)
    except _UnreadableError as error:
        yield UnreadRow(place=f"line {value.lineno}", reason=str(error))


def _plain(node: ast.expr, classes: dict[str, dict[str, Any]]) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(_plain(part, classes) for part in parts)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(_plain(operand, classes))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SUMS:
            numbers = [_number(_plain(side, classes)) for side in (left, right)]
            if isinstance(op, ast.FloorDiv) and not numbers[1]:
                raise _UnreadableError("a division by zero")
            return _number(_SUMS[type(op)](*numbers))
        case ast.Call(func=ast.Name(id=name), args=given, keywords=named):
            return _made(name, given, named, classes)
    raise _UnreadableError(f"{ast.unparse(node)[:80]} is no plain value")


def _plain_or_dots(node: ast.expr, classes: dict[str, dict[str, Any]]) -> Any:
    """``...`` where the node is no plain value."""
    try:
        return _plain(node, classes)
    except _UnreadableError:
        return ...


def _number(value: Any) -> Any:
    if type(value) not in (int, float) or abs(value) > _LARGEST:
        raise _UnreadableError(f"{str(value)[:40]} is no number of a block size")
    return value


def _made(
    name: str, given: list[ast.expr], named: list[ast.keyword], classes: dict[str, dict[str, Any]]
) -> ConstructorCall:
    known = classes.get(name, {})
    fields = {part.arg: _plain(part.value, classes) for part in named if part.arg}
    if len(given) > len(known) or len(fields) < len(named):
        raise _UnreadableError(f"the fields of {name} are not named")
    fields |= dict(zip(known, (_plain(part, classes) for part in given), strict=False))
    whole = {**known, **fields}
    lacking = [field for field, value in whole.items() if value is ...]
    if lacking:
        raise _UnreadableError(f"{name} lacks {', '.join(lacking)}")
    return ConstructorCall(name, tuple(whole.items()))
