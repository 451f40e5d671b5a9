"""What a kernel runs, as far as it can be read: the statements that it rests on, in its own file
and in those that it imports from beside it. Nothing is executed: imports inside functions count,
imports by computed names do not.

What does not run is left out: docstrings, annotations of functions, the choices of axes and the
default config; and what means the same is one text in every version of Python.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonpath
from pathlib import Path
from threading import Lock
from typing import Any

from autotune.declaring.slices import bound_by, reachable, used_names

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


_ENGINE = "autotune"  # a newer engine tunes the same kernel

_PARSING = Lock()
"""Python before 3.12.3 counts for all threads together how deep ``ast.parse`` is: now and then one
of them raises ``SystemError`` (CPython's issue 106905)."""

Names = set[str] | None
"""Of a module; None: all of it."""


def code(path: Path, attribute: str, source: str = "") -> dict[Path, list[str]]:
    """What ``attribute`` of a module rests on, statement by statement: by file, that of the
    declaration first. ``source``: in the place of that file. Raises ``OSError``."""
    reached = _reached(path, attribute, source)
    return {file: module.text for file, module in reached.items()}


def whole_text(path: Path, source: str = "") -> list[str]:
    """Of a module and of what it imports from beside it, as it is written, choices and defaults
    included. Raises ``OSError``."""
    return [module.raw for module in _reached(path, None, source).values()]


def all_files(path: Path) -> tuple[Path, list[Path]]:
    """What a module needs to be imported, as far as it is beside it, its own file first; and the
    folder that holds all of it with the packages that it is in. Raises ``OSError``."""
    files = list(_reached(path, None, ""))
    home = commonpath([_package_root(files[0]).folder, *(file.parent for file in files)])
    return Path(home), files


@dataclass(frozen=True, slots=True)
class _Root:
    """The folder that holds the outermost package of a kernel, and the name of that package where
    the folder holds what was installed: what lies beside it there is not the kernel's own."""

    folder: Path
    only: str | None

    def holds(self, base: Path, package: str) -> bool:
        return base != self.folder or self.only in (None, package)


class _Module:
    """A file, and what is wanted of it so far."""

    def __init__(self, path: Path, source: str) -> None:
        self.path, self.text, self.wanted = path, list[str](), set[str]()
        self.whole = False
        self.raw = source or path.read_text(encoding="utf-8")
        try:
            with _PARSING:
                parsed = without_docstring(ast.parse(self.raw).body)
            self._body: list[ast.stmt] | None = parsed
            self._axes = tuned(parsed)
        except (ValueError, SyntaxError):
            self._body = None  # it cannot be imported either
        self._plain: set[int] = set()

    def want(self, names: Names) -> list[ast.stmt] | None:
        """The statements behind all that was wanted; None where nothing is new."""
        if self.text and (self.whole or (names is not None and names <= self.wanted)):
            return None
        self.whole |= names is None
        self.wanted |= names or set()
        if self._body is None:
            self.text = [self.raw]
            return []
        wanted = self.wanted
        statements, needed = reachable(self._body, wanted, self._prepare)
        if self.whole:
            statements = self._body
            for stmt in statements:
                self._prepare(stmt)
                needed |= used_names(stmt, needed)
        self.text = [f"{self.path.name}:", *(_text(stmt, needed) for stmt in statements)]
        return [_needed_part(stmt, needed, self.whole) for stmt in statements]

    def _prepare(self, stmt: ast.stmt) -> None:
        if id(stmt) not in self._plain:
            self._plain.add(id(stmt))
            plain(stmt, self._axes)


def _reached(path: Path, attribute: str | None, source: str) -> dict[Path, _Module]:
    """The modules by file, that of the declaration first, then by name. ``attribute``: None for all
    of each module."""
    path = path.resolve()
    root = _package_root(path)
    modules = {path: _Module(path, source)}
    first = None if attribute is None else {attribute.partition(".")[0]}
    todo: list[tuple[Path, Names]] = [(path, first)]
    while todo:
        file, names = todo.pop()
        if file not in modules:
            try:
                modules[file] = _Module(file, "")
            except (OSError, ValueError):
                continue
        statements = modules[file].want(names if attribute else None)
        if statements is None:
            continue
        if attribute is None:
            todo += [(package, None) for package in _packages(file)]
        for stmt in statements:
            todo += _imported(stmt, statements, modules[file], root)
    return {file: modules[file] for file in [path, *sorted(modules.keys() - {path})]}


def _text(stmt: ast.stmt, needed: set[str]) -> str:
    return text(_needed_part(stmt, needed, whole=False))


def _needed_part(stmt: ast.stmt, needed: set[str], whole: bool) -> ast.stmt:
    """Of an import at the top of a module the names that are needed."""
    if whole or not isinstance(stmt, ast.Import | ast.ImportFrom):
        return stmt
    names = sorted(
        (alias for alias in stmt.names if bound_by(alias) in needed or alias.name == "*"),
        key=lambda alias: (alias.name, alias.asname or ""),
    )
    if isinstance(stmt, ast.Import):
        return ast.Import(names=names)
    return ast.ImportFrom(module=stmt.module, names=names, level=stmt.level)


def _used_of(name: str, statements: Sequence[ast.stmt]) -> Names:
    """What is taken of a module; all where it is not only asked for attributes."""
    names, asked = set[str](), set[int]()
    for node in (node for stmt in statements for node in ast.walk(stmt)):
        base = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(node, ast.Attribute) and isinstance(base, ast.Name) and base.id == name:
            names.add(node.attr)
            asked.add(id(base))
    bare = (n for stmt in statements for n in ast.walk(stmt) if isinstance(n, ast.Name))
    return None if any(n.id == name and id(n) not in asked for n in bare) else names


def _imported(
    stmt: ast.stmt, statements: Sequence[ast.stmt], module: _Module, root: _Root
) -> Iterator[tuple[Path, Names]]:
    """The files beside a module that one of its statements imports from, with the names."""
    for node in ast.walk(stmt):
        if isinstance(node, ast.Import):
            for alias in node.names:
                for base in (root.folder, module.path.parent):
                    for file in _files(base, alias.name.split("."), root):
                        dotted = "." in alias.name and not alias.asname
                        yield file, None if dotted else _used_of(bound_by(alias), statements)
        elif isinstance(node, ast.ImportFrom):
            relative = module.path.parents[node.level - 1] if node.level else None
            parts = node.module.split(".") if node.module else []
            for base in (relative,) if relative else (root.folder, module.path.parent):
                for alias in node.names:
                    for file in _files(base, [*parts, alias.name], root):
                        yield file, _used_of(bound_by(alias), statements)
                    for file in _files(base, parts, root):
                        yield file, None if alias.name == "*" else {alias.name}


def _packages(path: Path) -> Iterator[Path]:
    """What is executed before a module of a package: the packages that it is in."""
    for folder in path.parents:
        package = folder / "__init__.py"
        if not package.is_file():
            return
        yield package


def _package_root(path: Path) -> _Root:
    """Its own folder where a file is in no package. The same however the kernel is named: by its
    file or as an installed one."""
    outermost = path
    while (outermost.parent / "__init__.py").is_file():
        outermost = outermost.parent
    folder = outermost.parent
    installed = next(folder.glob("*.dist-info"), None) is not None
    return _Root(folder, outermost.stem if installed else None)


def _files(base: Path, parts: list[str], root: _Root) -> Iterator[Path]:
    """The file of a module or of a package; nothing for one that is installed elsewhere."""
    if not parts or parts[0] == _ENGINE or not root.holds(base, parts[0]):
        return
    place = base.joinpath(*parts)
    for file in (place.with_name(place.name + ".py"), place / "__init__.py"):
        if file.is_file():
            yield file.resolve()
