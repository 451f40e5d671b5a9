"""What a change of the source does: the kernels of a working tree against another revision."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autotune.domain.compilers import Compilers
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, KernelRef, KernelSpec, Key, Toolchain
from autotune.domain.problem import Problem
from autotune.domain.record import Check, Record, Unchecked
from autotune.domain.store import Store
from autotune.publishing.checking.record_check import PriorConfig
from autotune.publishing.checking.run import CheckRun

_SHORT = 9  # characters of a commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """``folder`` holds all files of the ``tree`` as they are in ``commit``."""

    tree: Path
    folder: Path
    commit: str

    def ref(self, ref: KernelRef) -> KernelRef | None:
        """The same kernel there; None where its file is not there."""
        path = self.folder / Path(ref.path).relative_to(self.tree)
        if not path.is_file():
            return None
        root = self.folder / Path(ref.root).relative_to(self.tree) if ref.root else ""
        return replace(
            ref, path=str(path), root=str(root), copy=str(self.folder), copy_of=str(self.tree)
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
        folder.mkdir(parents=True, exist_ok=True)
        index = {"GIT_INDEX_FILE": str(folder.with_name(f"{folder.name}.index"))}
        _git(tree, "read-tree", commit, **index)
        _git(tree, "checkout-index", "--all", "--force", f"--prefix={folder}/", **index)
        yield Revision(tree=tree, folder=folder, commit=commit[:_SHORT])


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


def _asked(folder: Path, *command: str) -> str | None:
    """None where Git says no."""
    try:
        return _git(folder, *command)
    except InvalidInputError:
        return None


def _git(folder: Path, *command: str, **environment: str) -> str:
    """The one boundary to Git. Inside a hook it would speak of another repository."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *command],  # noqa: S607 (the user's own git)
            env={**inherited, **environment, "LC_ALL": "C"},
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


NewCompilers = Callable[[], AbstractContextManager[Compilers]]
NewStore = Callable[[], AbstractContextManager[Store]]


def compare_revision(
    revision: str,
    new_compilers: NewCompilers,
    new_store: NewStore,
    compilers: Compilers,
    refs: Mapping[str, KernelRef],
    asked: Sequence[PriorConfig],
    done: Callable[[Check], None],
    hear: Callable[[str], None] | None = None,
) -> list[Check]:
    """Compare kernels with what they are in a ``revision``. Each source is compiled by processes of
    its own, which nothing of the other is loaded into, and kept in a store of its own: a
    fingerprint does not see all that a kernel imports. ``refs``: by name, of the working tree,
    which ``compilers`` compile; ``asked``: what to compare, with nothing known of it; ``hear``:
    as ``CheckRun`` has it."""
    with ExitStack() as stack:
        trees = {name: working_tree(Path(ref.path)) for name, ref in refs.items()}
        revisions = {
            tree: stack.enter_context(checked_out(tree, revision)) for tree in set(trees.values())
        }
        there = {name: revisions[trees[name]].ref(ref) for name, ref in refs.items()}
        labels = {f"{revision} ({source.commit})" for source in revisions.values()}
        label = " ".join(sorted(labels))
        known = {name: ref for name, ref in there.items() if ref}
        old = [prior for prior in asked if prior.key.kernel in known]
        before, new_run = list(asked), partial(CheckRun, against=label, hear=hear)
        if old:
            with new_compilers() as old_compilers, new_store() as old_store:
                run = new_run(compilers=old_compilers, store=old_store, refs=known)
                checks = {_place(c.key, c): c for c in run.run(old, (), lambda _: None)}
            before = [_known(prior, checks.get(_place(prior.key, prior))) for prior in asked]
        store = stack.enter_context(new_store())
        run = new_run(compilers=compilers, store=store, refs=refs)
        return run.run(before, (), done)


def priors_of(
    spec: KernelSpec,
    toolchain: Toolchain,
    problems: Iterable[tuple[Problem, Chip]],
    records: Iterable[Record],
    call: str = "",
) -> list[PriorConfig]:
    """What to compare of a kernel: its default for each problem and chip, those of its records
    included, and the tuned config of each record. ``call``: of a decorated function, in words."""
    tuned: dict[tuple[Problem, Chip], Record | None] = dict.fromkeys(problems)
    for record in records:
        if record.key.kernel == spec.name:
            tuned[record.key.problem, record.key.chip] = record
    priors = []
    for (problem, chip), best in tuned.items():
        key = spec.key(problem, chip, toolchain)
        priors.append(PriorConfig(key=key, config=None, outcome=None, is_default=True, call=call))
        if best is not None and not best.is_default:
            priors.append(PriorConfig(key=key, config=best.config, outcome=None, call=call))
    return priors


def kernels_here(refs: Mapping[str, KernelRef | str], folder: Path) -> dict[str, KernelRef]:
    """Those of the installed kernels whose source is in the working tree around a folder. Raises
    ``InvalidInputError`` where there is none."""
    tree, kernels = working_tree(folder), {}
    for name, ref in refs.items():
        if isinstance(ref, KernelRef) and Path(ref.path).resolve().is_relative_to(tree):
            try:
                working_tree(Path(ref.path).resolve())
            except InvalidInputError:
                continue  # an environment inside the working tree
            kernels[name] = ref
    if not kernels:
        raise InvalidInputError(
            f"no installed kernel has its source in {tree}: name its file, autotune check "
            "path/to/file.py:NAME"
        )
    return kernels


def _place(key: Key, asked: Check | PriorConfig) -> tuple[object, ...]:
    config = None if asked.is_default else asked.config
    return key.kernel, key.problem, key.chip, asked.is_default, config


def _known(prior: PriorConfig, check: Check | None) -> PriorConfig:
    """With what became of it at the revision; its key is that of the source there."""
    if check is None:
        return prior
    if check.winner is None:
        is_known = check.cause in (Unchecked.NO_KERNEL, Unchecked.NO_PROBLEM)
        cause = Unchecked.NO_BASELINE if is_known else Unchecked.NO_ANSWER
        return replace(prior, why=check.detail, cause=cause)
    return replace(prior, key=check.target, outcome=check.winner)
