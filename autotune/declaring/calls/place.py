"""Where a decorated function stands, so that the compiler process finds it: a file, or the text of
what it rests on where there is none, as in a notebook."""

import ast
import linecache
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from autotune.declaring.slices import bound_names, reachable, texts
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import KernelRef


def place_of(attribute: str, module: str, filename: str) -> KernelRef:
    """``filename``: of the code that decorates. Raises ``InvalidInputError`` for a function that
    nobody else can find."""
    if "<locals>" in attribute:
        raise InvalidInputError(
            f"{attribute} is defined inside a function, where the compiler process cannot find it: "
            "define it at the top of a module"
        )
    path = Path(filename)
    if not path.is_file():
        here = str(Path.cwd() / "notebook.py")
        return KernelRef(path=here, attribute=attribute, source=_portable(attribute, module))
    if module == "__main__":  # not the whole file: it may search as it is run
        return KernelRef(
            path=str(path.resolve()), attribute=attribute, source=_part(path, attribute)
        )
    parts = module.split(".")
    folders, depth = path.resolve().parents, len(parts) - (path.name != "__init__.py")
    if depth >= len(folders):
        raise InvalidInputError(f"{path} cannot be module {module}: import it by its own name")
    if len(parts) > 1:
        root = str(folders[depth])
        return KernelRef(path=str(path.resolve()), attribute=attribute, module=module, root=root)
    return KernelRef(path=str(path.resolve()), attribute=attribute)


def _part(path: Path, attribute: str) -> str:
    source = path.read_text(encoding="utf-8")
    body = ast.parse(source).body
    statements, _ = reachable(body, {attribute.partition(".")[0]})
    future = [
        stmt for stmt in body if isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__"
    ]
    return "\n".join(texts(source, future + statements)) + "\n"


def _portable(attribute: str, module: str) -> str:
    if module not in sys.modules:
        raise InvalidInputError(
            f"{attribute} is defined in no module, where the compiler process cannot find it: "
            "define it in a file, or in a cell of a notebook"
        )
    pieces: dict[str, None] = {}
    name = attribute.partition(".")[0]
    _collect(name, vars(sys.modules[module]), pieces, set())
    return "\n".join(pieces) + "\n"


def _collect(name: str, home: dict[str, Any], pieces: dict[str, None], seen: set[str]) -> None:
    """Put the text that defines a name, after the text of all that it uses."""
    if name in seen or name not in home:
        return
    seen.add(name)
    value = home[name]
    cell = _cell(value, home)
    if cell is None:
        pieces[_line(name, value, home)] = None
        return
    statements, needed = reachable(ast.parse(cell).body, {name})
    bound = {name for stmt in statements for name in bound_names(stmt)}
    for other in sorted(needed - bound):
        _collect(other, home, pieces, seen)
    for stmt, text in zip(statements, texts(cell, statements), strict=True):
        seen |= bound_names(stmt)
        pieces[text] = None


def _cell(value: Any, home: dict[str, Any]) -> str | None:
    """The text of the cell that defines a function, a class or a decorated function."""
    filename = getattr(value, "filename", None)  # of a decorated function
    if filename is None and getattr(value, "__module__", None) == home.get("__name__"):
        parts = (value, *getattr(value, "__dict__", {}).values())
        code = next((part.__code__ for part in parts if hasattr(part, "__code__")), None)
        filename = code and code.co_filename
    lines = linecache.getlines(filename) if isinstance(filename, str) else []
    return "".join(lines) or None


def _line(name: str, value: Any, home: dict[str, Any]) -> str:
    """One line that defines the name anew. Raises ``InvalidInputError`` where there is none."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    module = str(getattr(value, "__module__", None) or "")
    for attribute in ("__qualname__", "__name__"):
        other = str(getattr(value, attribute, ""))
        elsewhere = module and other and module != home.get("__name__")
        if elsewhere and getattr(import_module(module), other, None) is value:
            return f"from {module} import {other} as {name}"
    try:
        if ast.literal_eval(repr(value)) == value:
            return f"{name} = {value!r}"
    except (ValueError, SyntaxError):
        pass
    raise InvalidInputError(
        f"the compiler process cannot be told what {name} is ({type(value).__name__}): define it "
        "in the same cell, or in a module"
    )
