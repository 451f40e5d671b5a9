"""What is imported beside a kernel of another revision is of that revision."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.child.loading import CopiedTrees


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """The tree, from which modules are imported, and its copy."""
    tree, copy = tmp_path / "tree", tmp_path / "copy"
    for root in (tree, copy):
        (root / "src/copied_pkg").mkdir(parents=True)
        (root / "src/copied_pkg/__init__.py").write_text("")
        (root / "src/copied_pkg/impl.py").write_text(f"PLACE = {str(root)!r}\n")
        (root / "src/copied_module.py").write_text("")
    (tree / "src/copied_pkg/_version.py").write_text("")  # generated, not committed
    (tree / "src/fresh_module.py").write_text("")
    finder = CopiedTrees()
    finder.copies[str(tree)] = str(copy)
    monkeypatch.syspath_prepend(str(tree / "src"))
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    yield tree, copy
    for name in [one for one in sys.modules if one.startswith("copied_")]:
        del sys.modules[name]


def origin(name: str) -> str:
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None
    return found.origin


def test_what_lies_in_the_tree_comes_from_the_copy(trees: tuple[Path, Path]) -> None:
    _, copy = trees
    assert origin("copied_module") == str(copy / "src/copied_module.py")
    assert origin("copied_pkg.impl") == str(copy / "src/copied_pkg/impl.py")


def test_what_the_copy_lacks_comes_from_the_tree(trees: tuple[Path, Path]) -> None:
    tree, _ = trees
    assert origin("fresh_module") == str(tree / "src/fresh_module.py")
    assert origin("copied_pkg._version") == str(tree / "src/copied_pkg/_version.py")


def test_all_else_is_left_alone(trees: tuple[Path, Path]) -> None:
    assert "site-packages" in origin("click")
    assert importlib.util.find_spec("no_such_module_at_all") is None
