"""What is imported beside a kernel of another revision is of that revision."""

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from autotune.compiling.child import loading
from autotune.compiling.child.loading import CopiedTrees, Loader, LoadError
from autotune.domain.key import KernelRef


@pytest.fixture
def trees(tmp_path, monkeypatch):
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


def origin(name):
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None
    return found.origin


def test_what_lies_in_the_tree_comes_from_the_copy(trees):
    _, copy = trees
    assert origin("copied_module") == str(copy / "src/copied_module.py")
    assert origin("copied_pkg.impl") == str(copy / "src/copied_pkg/impl.py")


def test_what_the_copy_lacks_comes_from_the_tree(trees):
    tree, _ = trees
    assert origin("fresh_module") == str(tree / "src/fresh_module.py")
    assert origin("copied_pkg._version") == str(tree / "src/copied_pkg/_version.py")


def test_this_program_itself_is_not_what_is_compared(tmp_path):
    """As when its own repository is checked."""
    file = Path(loading.__file__)
    copied = tmp_path / "copy" / file.relative_to(file.parents[2])
    copied.parent.mkdir(parents=True)
    copied.write_text("")
    finder = CopiedTrees()
    finder.copies[str(file.parents[2])] = str(tmp_path / "copy")
    assert finder.find_spec("autotune.compiling.child.loading", [str(file.parent)]) is None
    assert finder.strays() == []


def place_of(name):
    return importlib.import_module(name).PLACE


def written(root, name):
    file = root / "src" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"PLACE = {str(root)!r}\n")


def test_a_namespace_package_comes_from_the_copy_whatever_sys_path_says(
    trees, tmp_path, monkeypatch
):
    tree, copy = trees
    for root in trees:
        written(root, "copied_space/deep/a.py")
        written(root, "copied_space/b.py")
    written(tree, "copied_space/generated.py")
    assert place_of("copied_space.deep.a") == str(copy)
    monkeypatch.syspath_prepend(str(tmp_path))  # as the next kernel does
    assert place_of("copied_space.b") == str(copy)
    assert place_of("copied_space.generated") == str(tree)


def test_a_folder_that_has_become_a_package_since(trees):
    tree, copy = trees
    for name in ("copied_pkg/inner", "copied_top"):
        for root in trees:
            written(root, f"{name}/a.py")
        written(tree, f"{name}/__init__.py")
        assert place_of(f"{name.replace('/', '.')}.a") == str(copy)


def test_what_is_no_longer_in_the_tree_is_found_in_the_copy(trees):
    _, copy = trees
    written(copy, "copied_gone/__init__.py")
    assert place_of("copied_gone") == str(copy)


def test_what_was_imported_before_the_copy_was_known(trees):
    """The rest of the package is that of the copy, and the kernel is refused."""
    tree, copy = trees
    written(copy, "copied_kernel.py")
    ref = KernelRef(
        path=str(copy / "src/copied_kernel.py"),
        attribute="PLACE",
        copy=str(copy),
        copy_of=str(tree),
    )
    finder, sys.meta_path = sys.meta_path[0], sys.meta_path[1:]
    importlib.import_module("copied_pkg")
    sys.meta_path.insert(0, finder)
    assert place_of("copied_pkg.impl") == str(copy)
    with pytest.raises(LoadError, match="copied_pkg came from"):
        Loader().kernel(ref)
    del sys.modules["copied_pkg"]
    with pytest.raises(LoadError, match="has no kernel declaration called PLACE"):
        Loader().kernel(ref)
