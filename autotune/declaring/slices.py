"""Which statements of a module a name rests on. Read, not executed."""

import ast
import re
from collections.abc import Callable, Iterator

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def reachable(
    body: list[ast.stmt], wanted: set[str], prepare: Callable[[ast.stmt], None] = lambda _: None
) -> tuple[list[ast.stmt], set[str]]:
    """The statements that define ``wanted`` or what these use, in their order, and all the names
    that they use. With them what changes what they use: ``TABLE.update(…)``,
    ``jax.config.update(…)``. What only calls a function is left out. ``prepare``: called with each
    statement before its names are read."""
    needed = {*wanted, "*"}  # what `from x import *` binds cannot be read here
    called = needed | {stmt.name for stmt in body if isinstance(stmt, _FUNCTIONS)}
    defined = [_defines(stmt, called) for stmt in body]
    reached: set[int] = set()
    while True:
        more = [
            place
            for place, names in enumerate(defined)
            if place not in reached and not needed.isdisjoint(names)
        ]
        if not more:
            return [body[place] for place in sorted(reached)], needed
        reached.update(more)
        for place in more:
            prepare(body[place])
            needed |= used_names(body[place], needed)


def bound_names(stmt: ast.stmt) -> set[str]:
    """What a statement defines; for a change of something, that."""
    if isinstance(stmt, _FUNCTIONS):
        return {stmt.name}
    if isinstance(stmt, ast.Import | ast.ImportFrom):
        return {bound_by(alias) for alias in stmt.names}
    names: set[str] = set()
    for node in ast.walk(stmt):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            if isinstance(node.ctx, ast.Store | ast.Del):
                names.add(_root(node))
        elif isinstance(node, ast.stmt) and node is not stmt:
            names |= bound_names(node)
    return names


def bound_by(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def used_names(stmt: ast.stmt, needed: set[str]) -> set[str]:
    """The names in it that are not a function's own. Of an import what is ``needed`` alone."""
    if isinstance(stmt, ast.Import | ast.ImportFrom):
        return bound_names(stmt) & needed
    return _free(stmt)


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """Without what is inside functions of its own."""
    yield node
    if not isinstance(node, (*_FUNCTIONS, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _within(child)


def _free(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Name):
        return {node.id}
    children = list(ast.iter_child_nodes(node))
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return set().union(*map(_free, children))
    body = node.body if isinstance(node.body, list) else [node.body]
    inside = [inner for part in body for inner in _within(part)]
    arguments = {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
    if not any(isinstance(inner, ast.Global | ast.Nonlocal) for inner in inside):
        arguments |= {
            n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
    outside = [child for child in children if child not in body]
    return set().union(*map(_free, body)) - arguments | set().union(*map(_free, outside))


def _defines(stmt: ast.stmt, called: set[str]) -> set[str]:
    """What a statement defines or changes. ``called``: names of functions."""
    if isinstance(stmt, ast.Expr):
        return {_root(stmt.value)} - called if isinstance(stmt.value, ast.Call) else set()
    if isinstance(stmt, ast.If) and _is_main_guard(stmt.test):
        return set()
    return bound_names(stmt)


def _root(node: ast.AST) -> str:
    """``a`` of ``a.b[c](d)``."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_main_guard(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))


def texts(source: str, statements: list[ast.stmt]) -> Iterator[str]:
    """Each as it is written, with its decorators."""
    lines = re.split(r"\r\n?|\n", source)  # as ``ast`` counts them: a form feed ends none
    for stmt in statements:
        first = min(
            [stmt.lineno, *(decorator.lineno for decorator in getattr(stmt, "decorator_list", []))]
        )
        yield "\n".join(lines[first - 1 : stmt.end_lineno])
