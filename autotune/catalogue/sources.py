"""The source files behind a kernel declaration: its own, and those it imports from beside it."""

import ast
from collections.abc import Iterator
from pathlib import Path

_ENGINE = "autotune"  # a newer engine tunes the same kernel


def source_files(path: Path) -> list[Path]:
    """``path`` first, then every file of its package or folder that it imports, directly or not.

    Read, not executed: imports inside functions count, imports by computed names do not.
    """
    path = path.resolve()
    found, todo, root = {path}, [path], _package_root(path)
    while todo:
        for file in _imported(todo.pop(), root):
            if file not in found:
                found.add(file)
                todo.append(file)
    return [path, *sorted(found - {path})]


def _package_root(path: Path) -> Path:
    """The folder that holds the outermost package of a file; its own folder where it is in none.
    The same however the kernel is named: by its file or as an installed one."""
    folder = path.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _imported(path: Path, root: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return  # it cannot be imported either
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                for base in (root, path.parent):
                    yield from _files(base, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            bases = (path.parents[node.level - 1],) if node.level else (root, path.parent)
            module = node.module.split(".") if node.module else []
            for base in bases:
                yield from _files(base, module)
                for alias in node.names:
                    yield from _files(base, [*module, alias.name])


def _files(base: Path, parts: list[str]) -> Iterator[Path]:
    """The file of a module or of a package; nothing for one that is installed elsewhere."""
    if not parts or parts[0] == _ENGINE:
        return
    place = base.joinpath(*parts)
    for file in (place.with_name(place.name + ".py"), place / "__init__.py"):
        if file.is_file():
            yield file.resolve()
