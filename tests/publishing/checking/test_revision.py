"""What another revision of a working tree is, whatever state the tree is in."""

from pathlib import Path

import pytest

from autotune.declaring.discovery import catalogue
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import KernelRef
from autotune.publishing.checking.against import checked_out, kernels_here, working_tree
from tests.samples.repository import commit, git, repository


def ref(tree, name="k.py"):
    return KernelRef(path=str(tree / name), attribute="KERNEL")


def old_text(tree, revision="main", name="k.py"):
    with checked_out(tree, revision) as found:
        there = found.ref(ref(tree, name))
        assert there is not None and (there.copy, there.copy_of) == (str(found.folder), str(tree))
        return Path(there.path).read_text()


def test_what_is_not_committed_is_the_change_and_stays_as_it_is(tmp_path):
    tree = repository(tmp_path / "r", {"k.py": "old = 1\n", "other.py": "x = 1\n"})
    (tree / "k.py").write_text("new = 2\n")
    (tree / "other.py").write_text("staged = 3\n")
    git(tree, "add", "other.py")
    before = git(tree, "status", "--porcelain")
    assert old_text(tree) == "old = 1\n"
    assert git(tree, "status", "--porcelain") == before != ""
    assert (tree / "k.py").read_text() == "new = 2\n"
    assert git(tree, "worktree", "list").count("\n") == 0


def test_a_branch_that_has_gone_on_is_taken_where_the_work_began(tmp_path):
    tree = repository(tmp_path / "r", {"k.py": "old = 1\n"})
    git(tree, "switch", "-q", "-c", "work")
    git(tree, "switch", "-q", "main")
    commit(tree, {"k.py": "of_others = 9\n"})
    git(tree, "switch", "-q", "work")
    commit(tree, {"k.py": "mine = 2\n"})
    assert old_text(tree) == "old = 1\n"


def test_a_tag_or_a_commit_is_taken_as_it_is(tmp_path):
    tree = repository(tmp_path / "r", {"k.py": "began = 1\n"})
    git(tree, "switch", "-q", "-c", "release")
    released = commit(tree, {"k.py": "released = 2\n"})
    git(tree, "tag", "v1")
    git(tree, "tag", "-a", "-m", "annotated", "v1.0")
    git(tree, "switch", "-q", "main")
    for name in ("v1", "v1.0", released, released[:9], "release~0"):
        assert old_text(tree, name) == "released = 2\n"
    assert old_text(tree, "release") == "began = 1\n"


def test_a_new_file_is_not_there(tmp_path):
    tree = repository(tmp_path / "r", {"k.py": "old = 1\n"})
    (tree / "fresh.py").write_text("new = 2\n")
    assert working_tree(tree / "fresh.py") == tree
    with checked_out(tree, "main") as found:
        assert found.ref(ref(tree, "fresh.py")) is None


def test_a_shallow_clone_has_the_branch_of_its_remote_only(tmp_path):
    origin = repository(tmp_path / "origin", {"k.py": "old = 1\n"})
    commit(origin, {"k.py": "newer = 2\n"})
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{origin}", "clone")
    clone = (tmp_path / "clone").resolve()
    git(clone, "switch", "-q", "-c", "work")
    git(clone, "branch", "-q", "-D", "main")
    commit(clone, {"k.py": "mine = 3\n"})
    assert old_text(clone) == "newer = 2\n"
    with pytest.raises(InvalidInputError, match=r"git fetch --depth=1 origin release"):
        old_text(clone, "release")


def test_what_git_says_inside_a_hook_is_not_believed(tmp_path, monkeypatch):
    other = repository(tmp_path / "other", {"k.py": "wrong = 1\n"})
    tree = repository(tmp_path / "r", {"k.py": "old = 1\n"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    assert old_text(tree) == "old = 1\n"


def test_a_revision_that_could_be_an_option(tmp_path):
    tree = repository(tmp_path / "r", {"k.py": "old = 1\n"})
    with pytest.raises(InvalidInputError, match="no revision"):
        old_text(tree, "--help")


def test_where_there_is_no_repository(tmp_path):
    (tmp_path / "k.py").write_text("")
    with pytest.raises(InvalidInputError, match="not a git repository"):
        working_tree(tmp_path / "k.py")


def test_an_installed_kernel_that_is_reached_through_a_link(tmp_path, monkeypatch):
    tree = repository(tmp_path / "r", {"linked_pkg/__init__.py": "", "linked_pkg/k.py": "old = 1"})
    (tree / "linked_pkg/k.py").write_text("new = 2")
    (tmp_path / "site/linked-0.dist-info").mkdir(parents=True)
    (tmp_path / "site/linked_pkg").symlink_to(tree / "linked_pkg")
    points = tmp_path / "site/linked-0.dist-info/entry_points.txt"
    points.write_text("[autotune.kernels]\nlinked = linked_pkg.k:KERNEL\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = kernels_here(catalogue(), tree)["linked"]
    with checked_out(tree, "main") as revision:
        there = revision.ref(found)
        assert there is not None and there.root == str(revision.folder)
        assert Path(there.path).read_text() == "old = 1"


def test_installed_kernels_of_the_working_tree_alone(tmp_path):
    tree = repository(tmp_path / "r", {"k.py": "old = 1\n"})
    (tree / ".gitignore").write_text(".venv\n")
    (tree / ".venv").mkdir()
    (tree / ".venv/k.py").write_text("")
    refs = {
        "mine": ref(tree),
        "installed": ref(tree / ".venv"),
        "elsewhere": ref(tmp_path),
        "broken": "a sentence",
    }
    assert kernels_here(refs, tree) == {"mine": refs["mine"]}
    with pytest.raises(InvalidInputError, match=r"name its file"):
        kernels_here({"elsewhere": ref(tmp_path)}, tree)
