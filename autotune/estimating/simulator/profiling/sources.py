"""From pieces of source to lines with their text, and only the calls that the text itself makes.

JAX traces a function once for equal arguments: what is cached carries the calls of its first use.
So a call is believed where its text names the function that the next piece stands in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from autotune.domain.profile import SourceLine
from autotune.estimating.simulator.profiling.locations import Chain, Location

_WORD = re.compile(r"\w+")
_DEEPEST = 16  # calls
_LONGEST = 200  # characters of a line


@cache
def _lines(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError):
        return ()


def frames(chain: Chain, read: Callable[[str], Sequence[str]] = _lines) -> tuple[SourceLine, ...]:
    """The calls to an operation. ``read``: the lines of a file, none where it cannot be read."""
    made = [_line(chain[0], read)]
    for outer, inner in pairwise(chain[:_DEEPEST]):
        line = _line(inner, read)
        called = " ".join(read(outer.file)[outer.first - 1 : outer.last])
        if not line.function or line.function not in _WORD.findall(called):
            break
        made.append(line)
    return tuple(made)


def _line(place: Location, read: Callable[[str], Sequence[str]]) -> SourceLine:
    lines = read(place.file)
    text = lines[place.first - 1].strip() if 0 < place.first <= len(lines) else ""
    inner = [
        name for first, last, name in _functions("\n".join(lines)) if first <= place.first <= last
    ]
    return SourceLine(
        file=place.file, line=place.first, function=inner[-1] if inner else "", text=text[:_LONGEST]
    )


@cache
def _functions(text: str) -> tuple[tuple[int, int, str], ...]:
    """First and last line of each function and its name, the outer ones first."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return ()
    return tuple(
        sorted(
            (node.lineno, node.end_lineno or node.lineno, node.name)
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )
    )
