"""A module without what does not run: docstrings, annotations of functions, the choices of axes and
the default config. And one text for what means the same, in every version of Python."""

import ast
from collections.abc import Mapping
from typing import Any

_UNSEEN = {"ctx", "type_comment", "kind", "lineno", "col_offset", "end_lineno", "end_col_offset"}
_OF_A_KERNEL = {"doc", "default", "default_on"}
_CHOICES = {"minimum", "maximum", "choices"}
_NOT_AN_AXIS = {"name", "dims", "reference", "baseline", "check", "mesh", "values", "ignore"}


def plain(stmt: ast.stmt, axes: Mapping[str, set[str]]) -> None:
    """Changes a statement at the top of a module. ``axes``: of its functions that are decorated
    elsewhere, by ``tuned``."""
    for node in ast.walk(stmt):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
            declared = (_axes(decorator) for decorator in node.decorator_list)
            _forget(node.args, axes.get(node.name, set()).union(*declared))
            node.body = without_docstring(node.body)
        elif isinstance(node, ast.ClassDef):
            node.body = without_docstring(node.body)
        elif isinstance(node, ast.Call):
            _shorten(node)


def tuned(body: list[ast.stmt]) -> dict[str, set[str]]:
    """The axes of each function that is the argument of ``tunable(…)(function)``."""
    doubles: dict[str, set[str]] = {}
    for stmt in body:
        if isinstance(stmt, ast.Assign | ast.AnnAssign) and isinstance(stmt.value, ast.Call):
            call = stmt.value
            if call.args and isinstance(call.args[0], ast.Name):
                doubles.setdefault(call.args[0].id, set()).update(_axes(call.func))
    return doubles


def _axes(call: ast.expr) -> set[str]:
    if not isinstance(call, ast.Call) or _called(call.func) != "tunable":
        return set()
    return {word.arg for word in call.keywords if word.arg} - _NOT_AN_AXIS


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return body[1:] if is_text and isinstance(first.value.value, str) else body  # type: ignore


def _called(node: ast.expr) -> str:
    """``tunable`` of ``autotune.tunable``."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _forget(arguments: ast.arguments, axes: set[str]) -> None:
    """No annotations, and no defaults of axes."""
    by_place = [*arguments.posonlyargs, *arguments.args]
    for argument in (*by_place, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if argument is not None:
            argument.annotation = None
    nothing = ast.Constant(value=None)
    first = len(by_place) - len(arguments.defaults)
    arguments.defaults = [
        nothing if by_place[first + n].arg in axes else value
        for n, value in enumerate(arguments.defaults)
    ]
    arguments.kw_defaults = [
        nothing if argument.arg in axes else value
        for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]


def _shorten(call: ast.Call) -> None:
    name = _called(call.func)
    if name == "Kernel":
        call.keywords = [word for word in call.keywords if word.arg not in _OF_A_KERNEL]
    elif name in ("block", "Axis"):
        call.keywords = [word for word in call.keywords if word.arg not in _CHOICES]
    elif name == "tunable":
        for word in call.keywords:
            is_block = isinstance(word.value, ast.Call) and _called(word.value.func) == "block"
            if word.arg and word.arg not in _NOT_AN_AXIS and not is_block:
                word.value = ast.Constant(value=None)
        call.keywords.sort(key=lambda word: word.arg or "")


def text(node: Any) -> str:
    """The same for the same code, however it is laid out. Not ``ast.dump``, which Python 3.13
    writes in another way."""
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in node._fields)
        parts = [f"{n}={text(v)}" for n, v in fields if n not in _UNSEEN and v not in (None, [])]
        value = [repr(node.value)] if isinstance(node, ast.Constant) else parts
        return f"{type(node).__name__}({','.join(value)})"
    return f"[{','.join(map(text, node))}]" if isinstance(node, list) else repr(node)
