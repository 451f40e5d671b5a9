"""Faults as people make them, put into the source of a kernel: one small edit for each.

Each operator looks at the syntax tree and names edits of the text; nothing knows what a kernel
computes. Whether an edit does harm is for who applies it to find out.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple


class Mutation(NamedTuple):
    """``fault`` is the operator's name; ``line`` that of the first changed character, from 1."""

    fault: str
    line: int
    old: str
    new: str
    start: int
    end: int

    def apply(self, source: str) -> str:
        assert source[self.start : self.end] == self.old
        return source[: self.start] + self.new + source[self.end :]


def mutations(source: str, functions: frozenset[str]) -> list[Mutation]:
    """Every edit inside of the functions of these names, in the order of the text."""
    tree = ast.parse(source)
    found = {
        mutation
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name in functions
        for inner in ast.walk(node)
        for mutation in _of_node(source, inner)
    }
    return sorted(found, key=lambda mutation: (mutation.start, mutation.fault, mutation.new))


def _of_node(source: str, node: ast.AST) -> Iterator[Mutation]:
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        yield _between(source, node.target, node.value, "carry lost", " += ", " = ")
    elif isinstance(node, ast.Call):
        yield from _of_call(source, node)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from _of_compare(source, node)
    elif isinstance(node, ast.BinOp):
        yield from _of_operation(source, node)
    elif isinstance(node, ast.Lambda) and isinstance(node.body, ast.Tuple):
        yield from _of_index_map(source, node.body)
    elif isinstance(node, ast.FunctionDef) and re.search("index_map|indices", node.name):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Return) and isinstance(inner.value, ast.Tuple):
                yield from _of_index_map(source, inner.value)
    elif isinstance(node, ast.Constant) and node.value == "arbitrary":
        yield _replaced(source, node, "parallel axis", '"parallel"')


def _of_call(source: str, node: ast.Call) -> Iterator[Mutation]:
    name = ast.unparse(node.func)
    if name.endswith("cdiv") and len(node.args) == 2:
        whole = " // ".join(f"({_text(source, arg)})" for arg in node.args)
        yield _replaced(source, node, "tail not in the grid", whole)
    if name in ("jnp.maximum", "jnp.exp", "exp") and node.args:
        if name == "jnp.maximum":
            yield _replaced(source, node, "carry lost", _text(source, node.args[-1]))
        elif isinstance(node.args[0], ast.BinOp) and isinstance(node.args[0].op, ast.Sub):
            yield _replaced(source, node, "rescaling lost", f"jnp.ones_like({_text(source, node)})")
    if name == "jnp.where" and len(node.args) == 3:
        yield _replaced(source, node, "mask lost", _text(source, node.args[1]))
    if name.endswith(("zeros_like", "full_like")):
        yield _replaced(source, node, "not cleared", _text(source, node.args[0]) + "[...]")


def _of_compare(source: str, node: ast.Compare) -> Iterator[Mutation]:
    left, operator, right = node.left, node.ops[0], node.comparators[0]
    other = {ast.Lt: (" < ", " <= "), ast.GtE: (" >= ", " > "), ast.Gt: (" > ", " >= "),
             ast.LtE: (" <= ", " < ")}.get(type(operator))  # fmt: skip
    if other is not None:
        yield _between(source, left, right, "border off by one", *other)
    if isinstance(operator, ast.Eq) and ast.unparse(right) == "0":
        yield _replaced(source, right, "first step missed", "1")
        yield _between(source, left, right, "cleared in every step", " == ", " >= ")
    elif (
        isinstance(operator, ast.Eq)
        and isinstance(right, ast.BinOp)
        and isinstance(right.op, ast.Sub)
    ):
        yield _replaced(source, right, "last step missed", _text(source, right.left))


def _of_operation(source: str, node: ast.BinOp) -> Iterator[Mutation]:
    left, right = _text(source, node.left), _text(source, node.right)
    if isinstance(node.op, ast.Mult):
        if "scale" in right.lower() or "scale" in left.lower():
            scale = right if "scale" in right.lower() else left
            yield _replaced(source, node, "scale twice", f"({_text(source, node)} * {scale})")
        elif "block" in right or "block" in left:
            yield _replaced(source, node, "offset of a neighbour", f"({left} + 1) * {right}")
            yield _replaced(source, node, "offset lost", f"(0 * {left} * {right})")
    elif isinstance(node.op, ast.FloorDiv):
        yield _replaced(source, node, "one step short", f"({_text(source, node)} - 1)")


def _of_index_map(source: str, node: ast.Tuple) -> Iterator[Mutation]:
    """A map of grid indices to a block: a tuple in which names stand alone."""
    for element in node.elts:
        if isinstance(element, ast.Name):
            name = element.id
            yield _replaced(
                source, element, "block of the neighbour", f"jnp.maximum({name} - 1, 0)"
            )
            yield _replaced(source, element, "first block always", "0")
    names = [element for element in node.elts if isinstance(element, ast.Name)]
    if len(names) == 2:
        first, second = names
        swapped = (
            source[_start(source, node) : _start(source, first)]
            + second.id
            + source[_end(source, first) : _start(source, second)]
            + first.id
            + source[_end(source, second) : _end(source, node)]
        )
        yield _replaced(source, node, "indices swapped", swapped)


def _between(
    source: str, left: ast.AST, right: ast.AST, fault: str, old: str, new: str
) -> Mutation:
    """The operator that stands between two nodes."""
    start = source.index(old.strip(), _end(source, left))
    assert start < _start(source, right)
    return _mutation(source, start, start + len(old.strip()), fault, new.strip())


def _replaced(source: str, node: ast.AST, fault: str, new: str) -> Mutation:
    return _mutation(source, _start(source, node), _end(source, node), fault, new)


def _mutation(source: str, start: int, end: int, fault: str, new: str) -> Mutation:
    line = source.count("\n", 0, start) + 1
    return Mutation(fault, line, source[start:end], new, start, end)


def _text(source: str, node: ast.AST) -> str:
    return source[_start(source, node) : _end(source, node)]


def _start(source: str, node: ast.AST) -> int:
    return _offset(source, node.lineno, node.col_offset)  # type: ignore[attr-defined]


def _end(source: str, node: ast.AST) -> int:
    return _offset(source, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]


def _offset(source: str, line: int, column: int) -> int:
    """``column`` counts bytes; kernels are ASCII, but their comments need not be."""
    lines = source.splitlines(keepends=True)
    before = lines[line - 1].encode()[:column].decode()
    return sum(map(len, lines[: line - 1])) + len(before)
