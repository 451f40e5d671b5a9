"""Which line of source each operation of a final listing comes from, with the calls that
its text makes.

libtpu writes the lines of the operations that it begins with (``llo_module.pb``, on demand). Those
that its passes make anew have others' lines, which are carried from text to text:

1. the same operation under another number: equal opcode, without its unit, and operands;
2. a pop has the line of its push, a copy and a spill that of the value, and so what loads it again;
3. what reads a value in place of an operation that is gone has the line of that one: a packed
   transpose for two, both halves of a load;
4. in the end, what has none has that of most operations with its opcode whose operands come from
   the same line; else that of the first that uses its result, of the next on its unit, or of what
   made its operand.

Scalars are carried by the first two alone: what computes an address serves many lines.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from autotune.domain.profile import SourceLine
from autotune.domain.protobuf import read_fields, read_varint
from autotune.estimating.simulator.bundles import is_vector

_DESCRIPTION, _RECORD, _STRING = 12, 1, 2  # fields of a module, and of its description
_LOCATION, _IDS = 1, 4  # fields of a record
_FILE, _FIRST, _LAST = 1, 2, 3  # fields of a location; its columns are not used

_OPERATION = re.compile(r"^ *%[a-z]*(\d+)(?:_\w+)? = (\S+) *(.*)$", re.M)
OPERAND = re.compile(r"%[a-z]*(\d+)(?:_\w+)?")
_COMMENT = re.compile(r"/\*.*?\*/|/\*.*")
_STEM = re.compile(r"[a-z]+")
_UNIT = re.compile(r"\.([mx][xl]u\d)\b")
_MATRIX_UNIT = re.compile(r"(?:\[(\d+)\])?\.(mxu\d)\b")
_MOST_RESULTS = 8  # of a product
SLOT = re.compile(r"\[#allocation\d+_spill\]")


class Location(NamedTuple):
    """A piece of source: lines from 1."""

    file: str
    first: int
    last: int


Chain = tuple[Location, ...]
"""The calls that lead to an operation, the outermost first."""


class _PassOperation(NamedTuple):
    number: int
    opcode: str
    text: str
    operands: tuple[int, ...]


def read_lines(module: bytes) -> dict[int, Chain]:
    """By number of the operation, from libtpu's description of a compiled function."""
    records: list[list[tuple[int, Any]]] = []
    names: list[str] = []
    for field, value in read_fields(module):
        for part, inner in read_fields(value) if field == _DESCRIPTION else ():
            if part == _STRING:
                names.append(bytes(inner).decode())
            elif part == _RECORD:
                records.append(list(read_fields(inner)))
    lines = {}
    for record in records:
        chain = tuple(_location(dict(read_fields(v)), names) for f, v in record if f == _LOCATION)
        numbers = [number for f, v in record if f == _IDS for number in _packed(v)]
        lines.update(dict.fromkeys(numbers, chain) if chain else {})
    return lines


def _location(fields: Mapping[int, Any], names: Sequence[str]) -> Location:
    first = fields.get(_FIRST, 0)
    return Location(names[fields.get(_FILE, 0)], first, fields.get(_LAST, first))


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = read_varint(data, at)
        yield number


def carry(lines: Mapping[int, Chain], texts: Iterable[str]) -> dict[int, Chain]:
    """The lines of all operations of the last text, as far as they can be known.

    ``texts``: of one function, as the passes leave it, in their order.
    """
    known, previous = dict(lines), _Text(())
    for text in texts:
        current = _Text(_operations(text))
        known |= _Carrier(known, previous, current).lines()
        previous = current
    return _LastText(known, previous).lines()


def _operations(text: str) -> tuple[_PassOperation, ...]:
    return tuple(
        _PassOperation(int(number), opcode, rest, tuple(map(int, OPERAND.findall(rest))))
        for number, opcode, rest in _OPERATION.findall(_COMMENT.sub("", text))
    )


class _Text:
    """The operations of a function after a pass, and what reads each value."""

    def __init__(self, operations: tuple[_PassOperation, ...]) -> None:
        self.operations = operations
        self.numbers = {operation.number for operation in operations}
        self.readers: dict[int, list[_PassOperation]] = {}
        for operation in operations:
            for operand in operation.operands:
                self.readers.setdefault(operand, []).append(operation)


class _Carrier:
    """Finds the lines of what is new in a text, one operation after the other."""

    def __init__(self, known: Mapping[int, Chain], before: _Text, now: _Text) -> None:
        made = {_stem(o.opcode) for o in now.operations if o.number not in known}
        gone = [o for o in before.operations if o.number not in now.numbers]
        alike = [o for o in before.operations if _stem(o.opcode) in made and o.number in known]
        self._known, self._before, self._now = known, before, now
        self._twins = {_key(o, {}): deque([o.number]) for o in alike}
        self._twins |= _by_key(o for o in gone if o.number in known)
        self._removed = {o.number for o in gone}
        self._products = _products(now.operations)
        self._renamed: dict[int, int] = {}

    def lines(self) -> dict[int, Chain]:
        lines: dict[int, Chain] = {}
        last: dict[str, int] = {}  # by unit, or by spill slot: the operation that used it last
        for operation in self._now.operations:
            number = operation.number
            place = _UNIT.search(operation.opcode) or SLOT.search(operation.text)
            if number not in self._known:
                source = self._source(operation, place and last.get(place[0]))
                if source is not None and (source in self._known or source in lines):
                    lines[number] = self._known.get(source) or lines[source]
            if place and (number in self._known or number in lines):
                last[place[0]] = number
        return lines

    def _source(self, operation: _PassOperation, last: int | None) -> int | None:
        """The operation whose line is also that of a new one. ``last``: on its unit or slot."""
        if (source := self._products.get(operation.number)) is not None:
            return source
        twin = _next(self._twins.get(_key(operation, self._renamed)))
        if twin is not None:
            self._renamed[operation.number] = twin
            return twin
        source = _pushed(operation, last)
        is_new = operation.number not in self._before.numbers
        if source is None and is_new and is_vector(operation.opcode):
            return _replaced(operation, self._before, self._removed, self._known)
        return source


def _by_key(operations: Iterable[_PassOperation]) -> dict[tuple[str, str], deque[int]]:
    keys: dict[tuple[str, str], deque[int]] = {}
    for operation in operations:
        keys.setdefault(_key(operation, {}), deque()).append(operation.number)
    return keys


def _next(twins: deque[int] | None) -> int | None:
    """Of several in their order, the last again and again."""
    if not twins:
        return None
    return twins.popleft() if len(twins) > 1 else twins[0]


def _products(operations: Iterable[_PassOperation]) -> dict[int, int]:
    """The product of each pop of a matrix unit, which names none: that which wrote the accumulator
    last, or as many products as pops, in their order."""
    queues: dict[str, tuple[list[int], list[int]]] = {}
    written: dict[tuple[str, int], int] = {}
    made: dict[int, int] = {}
    for operation in operations:
        unit = _MATRIX_UNIT.search(operation.opcode)
        if unit is None:
            continue
        first, name, number = int(unit[1] or -1), unit[2], operation.number
        products, pops = queues.setdefault(name, ([], []))
        if operation.opcode.startswith("vmatmul"):
            products.append(number)
            written |= {(name, first + n): number for n in range(_MOST_RESULTS)}
        elif operation.opcode.startswith("vpop") and (name, first) in written and unit[1]:
            made[number] = written[name, first]
        elif operation.opcode.startswith("vpop"):
            pops.append(number)
    for products, pops in queues.values():
        pairs = enumerate(pops) if products else ()
        made |= {pop: products[n * len(products) // len(pops)] for n, pop in pairs}
    return made


def _key(operation: _PassOperation, renamed: Mapping[int, int]) -> tuple[str, str]:
    text = OPERAND.sub(lambda o: f"%{renamed.get(int(o[1]), int(o[1]))}", operation.text)
    return _stem(operation.opcode), text.strip()


def _stem(opcode: str) -> str:
    """The first letters: ``vpow2.f32`` was ``vpow.pop`` before it was cut in two."""
    stem = _STEM.match(opcode)
    return stem[0] if stem else opcode


def _pushed(operation: _PassOperation, last: int | None) -> int | None:
    """What a pop takes off its unit, a spill stores, a load has back, or a copy copies."""
    if operation.opcode.startswith(("vpop", "vmov")) or SLOT.search(operation.text):
        return operation.operands[0] if operation.operands else last
    return None


def _replaced(
    operation: _PassOperation, before: _Text, removed: set[int], known: Mapping[int, Chain]
) -> int | None:
    """The operation that read most of the same values; of several one that is gone."""
    readers = Counter(
        reader.number
        for operand in operation.operands
        for reader in before.readers.get(operand, ())
        if reader.number in known and is_vector(reader.opcode)
    )
    return max(readers, key=lambda number: (number in removed, readers[number]), default=None)


class _LastText:
    """Lines for the vector operations that have none after the last pass."""

    def __init__(self, known: Mapping[int, Chain], text: _Text) -> None:
        self._lines, self._text = dict(known), text
        self._vectors = [o for o in text.operations if is_vector(o.opcode)]

    def lines(self) -> dict[int, Chain]:
        votes: dict[object, Counter[Chain]] = {}
        for operation in self._vectors:
            if line := self._lines.get(operation.number):
                votes.setdefault(self._kind(operation), Counter())[line] += 1
        behind = self._next_on_unit()
        self._give(self._vectors, lambda o: _most(votes.get(self._kind(o))))
        self._give(reversed(self._vectors), self._user)
        self._give(reversed(self._vectors), lambda o: self._first([behind.get(o.number, -1)]))
        self._give(self._vectors, lambda o: self._first(o.operands))
        return self._lines

    def _give(
        self, operations: Iterable[_PassOperation], line: Callable[[_PassOperation], Chain | None]
    ) -> None:
        for operation in operations:
            if operation.number not in self._lines and (chain := line(operation)):
                self._lines[operation.number] = chain

    def _kind(self, operation: _PassOperation) -> object:
        slot = SLOT.search(operation.text)
        return slot or _stem(operation.opcode), self._first(operation.operands)

    def _user(self, operation: _PassOperation) -> Chain | None:
        return self._first(o.number for o in self._text.readers.get(operation.number, ()))

    def _next_on_unit(self) -> dict[int, int]:
        """What comes next on the unit of each operation that has one: a product after weights."""
        following: dict[int, int] = {}
        last: dict[str, int] = {}
        for operation in reversed(self._vectors):
            if unit := _UNIT.search(operation.opcode):
                if unit[0] in last:
                    following[operation.number] = last[unit[0]]
                last[unit[0]] = operation.number
        return following

    def _first(self, numbers: Iterable[int]) -> Chain | None:
        return next((self._lines[n] for n in numbers if n in self._lines), None)


def _most(votes: Counter[Chain] | None) -> Chain | None:
    return votes.most_common(1)[0][0] if votes else None


_WORD, _CALLED = re.compile(r"\w+"), re.compile(r"\b(\w+)\(")
_DEEPEST = 16  # calls
_LONGEST = 200  # characters of a line
_NEAR = 2  # lines


@cache
def _lines(file: str) -> tuple[str, ...]:
    """Of a file, or of a notebook's cells; none where it cannot be read."""
    return tuple(line.rstrip("\n") for line in linecache.getlines(file))


# JAX traces a function once for equal arguments: what is cached carries the calls of its first use.
# So a call is believed where its text names the function that the next piece stands in, or calls
# what it was given as an argument.
def frames(chain: Chain, read: Callable[[str], Sequence[str]] = _lines) -> tuple[SourceLine, ...]:
    """The calls to an operation. ``read``: the lines of a file, none where it cannot be read."""
    made = [_line(chain[0], read)]
    for outer, inner in pairwise(chain[:_DEEPEST]):
        line = _line(inner, read)
        if not line.function or not _calls(outer, line.function, read):
            break
        made.append(line)
    return tuple(made)


def around(file: str, numbers: Iterable[int]) -> tuple[tuple[int, str], ...]:
    """Lines of a file and their neighbours, by their numbers, indented; none that is empty."""
    near = {n for line in numbers for n in range(line - _NEAR, line + _NEAR + 1)}
    return tuple(
        (n, text[:_LONGEST]) for n, text in enumerate(_lines(file), 1) if n in near and text.strip()
    )


def _calls(place: Location, function: str, read: Callable[[str], Sequence[str]]) -> bool:
    text = " ".join(read(place.file)[place.first - 1 : place.last])
    given = {name for around in _around(place, read(place.file)) for name in around.arguments}
    return function in _WORD.findall(text) or not given.isdisjoint(_CALLED.findall(text))


def _line(place: Location, read: Callable[[str], Sequence[str]]) -> SourceLine:
    lines = read(place.file)
    text = lines[place.first - 1].strip() if 0 < place.first <= len(lines) else ""
    inner = _around(place, lines)
    function = inner[-1].name if inner else ""
    return SourceLine(file=place.file, line=place.first, function=function, text=text[:_LONGEST])


class _Function(NamedTuple):
    first: int
    last: int
    name: str
    arguments: tuple[str, ...]


def _around(place: Location, lines: Sequence[str]) -> list[_Function]:
    """The functions that a place stands in, the innermost last."""
    functions = _functions("\n".join(lines))
    return [each for each in functions if each.first <= place.first <= each.last]


@cache
def _functions(text: str) -> tuple[_Function, ...]:
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return ()
    return tuple(
        sorted(
            _Function(node.lineno, node.end_lineno or node.lineno, node.name, _arguments(node.args))
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )
    )


def _arguments(given: ast.arguments) -> tuple[str, ...]:
    return tuple(each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs))
