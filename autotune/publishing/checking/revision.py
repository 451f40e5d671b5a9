"""Another revision of a working tree, beside it: what Git knows, as files."""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.domain.errors import InvalidInputError
from autotune.domain.kernel_ref import KernelRef

_SUBMODULE = "160000"  # the mode of its entry in a tree
_SHORT = 9  # characters of a commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """``folder`` holds all files of the ``tree`` as they are in ``commit``. ``renamed``: the name
    there of files that have another one now. ``missing``: submodules whose commit is not here."""

    tree: Path
    folder: Path
    commit: str
    renamed: Mapping[str, str]
    missing: tuple[str, ...] = ()

    def ref(self, ref: KernelRef) -> KernelRef | None:
        """The same kernel there; None where its file is not there."""
        name = Path(ref.path).relative_to(self.tree).as_posix()
        path = self.folder / self.renamed.get(name, name)
        if not path.is_file():
            return None
        root = self.folder / Path(ref.root).relative_to(self.tree) if ref.root else None
        inside = path.relative_to(root) if root and path.is_relative_to(root) else None
        return replace(
            ref,
            path=str(path),
            module=".".join(inside.with_suffix("").parts) if inside else "",
            root=str(root or ""),
            copy=str(self.folder),
            copy_of=str(self.tree),
        )


def working_tree(file: Path) -> Path:
    """The root of the working tree that a file belongs to. Raises ``InvalidInputError`` where it
    belongs to none."""
    folder = file if file.is_dir() else file.parent
    try:
        top = Path(_git(folder, "rev-parse", "--show-toplevel").strip()).resolve()
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{error}: a revision needs a repository, else name a bundle or a service"
        ) from error
    if file != folder and not _git(top, "ls-files", "-co", "--exclude-standard", "--", str(file)):
        raise InvalidInputError(f"{file} is not a file of the repository at {top}: Git ignores it")
    return top


@contextmanager
def checked_out(tree: Path, name: str) -> Iterator[Revision]:
    """The revision ``name`` of a working tree in a temporary folder; nothing of the tree, its index
    or its repository changes. Where a branch has gone on since, it is the commit that the work
    began from; a tag or a commit is taken as it is. Raises ``InvalidInputError``."""
    commit = _commit(tree, name)
    with tempfile.TemporaryDirectory(prefix="autotune-revision-") as place:
        folder = Path(place).resolve() / "tree"
        missing = _write(tree, commit, folder)
        yield Revision(
            tree=tree,
            folder=folder,
            commit=commit[:_SHORT],
            renamed=_renamed(tree, commit),
            missing=tuple(missing),
        )


def _commit(tree: Path, name: str) -> str:
    """Of a branch, a tag or a commit; a branch that is only at the remote counts. In a shallow
    clone, which does not know where the work began, it is the branch's own."""
    if name.startswith("-"):
        raise InvalidInputError(f"{name!r} is no revision")
    for ref in (name, f"origin/{name}"):
        commit = _asked(tree, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        if commit is not None:
            full_name = _asked(tree, "rev-parse", "--symbolic-full-name", ref) or ""
            is_branch = full_name.startswith(("refs/heads/", "refs/remotes/"))
            began = _asked(tree, "merge-base", commit.strip(), "HEAD") if is_branch else None
            return (began or commit).strip()
    raise InvalidInputError(
        f"{name!r} is no revision of {tree}, no bundle file and no address of a service: a clone "
        f"with little history gets it with `git fetch --depth=1 origin {name}:{name}`"
    )


def _write(tree: Path, commit: str, folder: Path) -> list[str]:
    """The files of a commit, by an index of its own; its submodules too, but for those returned."""
    folder.mkdir(parents=True, exist_ok=True)
    index = {"GIT_INDEX_FILE": str(folder.with_name(f"{folder.name}.index"))}
    _git(tree, "read-tree", commit, **index)
    _git(tree, "checkout-index", "--all", "--force", f"--prefix={folder}/", **index)
    missing = []
    for line in _git(tree, "ls-tree", "-r", "-z", commit).split("\0"):
        if line.startswith(_SUBMODULE):
            inner, _, name = line.split(" ")[2].partition("\t")
            if _asked(tree / name, "cat-file", "-e", inner) is None:
                missing.append(name)
            else:
                missing += [f"{name}/{file}" for file in _write(tree / name, inner, folder / name)]
    return missing


def _renamed(tree: Path, commit: str) -> dict[str, str]:
    """Old names of files that Git knows to be renamed since, by their new ones."""
    renames = _git(tree, "diff", "--find-renames", "--diff-filter=R", "--name-status", "-z", commit)
    parts = renames.split("\0")
    return {new: old for _, old, new in zip(parts[0::3], parts[1::3], parts[2::3], strict=False)}


def _asked(folder: Path, *command: str) -> str | None:
    """None where Git says no."""
    try:
        return _git(folder, *command)
    except InvalidInputError:
        return None


def _git(folder: Path, *command: str, **environment: str) -> str:
    """The one boundary to Git. Inside a hook it would speak of another repository."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *command],  # noqa: S607 (the user's own git)
            env={**own, **environment, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=True,
        )
    except FileNotFoundError as error:
        raise InvalidInputError("git is not installed: name a bundle or a service") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines()
        raise InvalidInputError(f"git at {folder}: {said[-1] if said else 'no'}") from error
    return done.stdout
