"""From pieces of source to lines with their text, and only the calls that the text itself makes.

JAX traces a function once for equal arguments: what is cached carries the calls of its first use.
So a call is believed where its text names the function that the next piece stands in, or calls what
it was given as an argument.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from autotune.domain.profile import SourceLine
from autotune.estimating.simulator.profiling.locations import Chain, Location

_WORD, _CALLED = re.compile(r"\w+"), re.compile(r"\b(\w+)\(")
_DEEPEST = 16  # calls
_LONGEST = 200  # characters of a line
_NEAR = 2  # lines


@cache
def _lines(file: str) -> tuple[str, ...]:
    """Of a file, or of a notebook's cells; none where it cannot be read."""
    return tuple(line.rstrip("\n") for line in linecache.getlines(file))


def frames(chain: Chain, read: Callable[[str], Sequence[str]] = _lines) -> tuple[SourceLine, ...]:
    """The calls to an operation. ``read``: the lines of a file, none where it cannot be read."""
    made = [_line(chain[0], read)]
    for outer, inner in pairwise(chain[:_DEEPEST]):
        line = _line(inner, read)
        if not line.function or not _calls(outer, line.function, read):
            break
        made.append(line)
    return tuple(made)


def around(
    file: str, numbers: Iterable[int], read: Callable[[str], Sequence[str]] = _lines
) -> tuple[tuple[int, str], ...]:
    """Lines of a file and their neighbours, by their numbers, indented; none that is empty."""
    lines = read(file)
    near = {n for line in numbers for n in range(line - _NEAR, line + _NEAR + 1)}
    return tuple(
        (n, text[:_LONGEST]) for n, text in enumerate(lines, 1) if n in near and text.strip()
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
