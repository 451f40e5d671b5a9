"""What a change of the source does: the kernels of a working tree against another revision."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.domain.check import Check, Unchecked
from autotune.domain.chip import Chip
from autotune.domain.compilers import Compilers
from autotune.domain.errors import InvalidInputError
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.problem import Problem
from autotune.domain.record import Record
from autotune.domain.store import Store
from autotune.domain.toolchain import Toolchain
from autotune.publishing.checking.prior import PriorConfig
from autotune.publishing.checking.revision import Revision, checked_out, working_tree
from autotune.publishing.checking.run import CheckRun

NewCompilers = Callable[[], AbstractContextManager[Compilers]]
NewStore = Callable[[], AbstractContextManager[Store]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionCheck:
    """Compares kernels with what they are in ``revision``. Each source is compiled by processes of
    its own, which nothing of the other is loaded into, and kept in a store of its own: a
    fingerprint does not see all that a kernel imports."""

    revision: str
    new_compilers: NewCompilers
    new_store: NewStore

    def run(
        self,
        compilers: Compilers,
        refs: Mapping[str, KernelRef],
        asked: Sequence[PriorConfig],
        done: Callable[[Check], None],
        warn: Callable[[str], None],
    ) -> list[Check]:
        """``refs``: by name, of the working tree, which ``compilers`` compile; ``asked``: what to
        compare, with nothing known of it."""
        with ExitStack() as stack:
            trees = {name: working_tree(Path(ref.path)) for name, ref in refs.items()}
            revisions = {
                tree: stack.enter_context(checked_out(tree, self.revision))
                for tree in set(trees.values())
            }
            for revision in revisions.values():
                _warn_of(revision, warn)
            there = {name: revisions[trees[name]].ref(ref) for name, ref in refs.items()}
            label = " ".join(sorted({self._label(revision) for revision in revisions.values()}))
            before = self._before({n: r for n, r in there.items() if r}, asked, label)
            run = CheckRun(
                compilers=compilers,
                store=stack.enter_context(self.new_store()),
                refs=refs,
                against=label,
            )
            return run.run(before, (), done)

    def _before(
        self, refs: Mapping[str, KernelRef], asked: Sequence[PriorConfig], label: str
    ) -> list[PriorConfig]:
        """What became of each at the revision."""
        old = [prior for prior in asked if prior.key.kernel in refs]
        if not old:
            return list(asked)
        with self.new_compilers() as compilers, self.new_store() as store:
            run = CheckRun(compilers=compilers, store=store, refs=refs, against=label)
            checks = {_place(c.key, c): c for c in run.run(old, (), lambda _: None)}
        return [_known(prior, checks.get(_place(prior.key, prior))) for prior in asked]

    def _label(self, source: Revision) -> str:
        return f"{self.revision} ({source.commit})"


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
        key = Key(
            kernel=spec.name,
            fingerprint=spec.fingerprint,
            problem=problem,
            chip=chip,
            toolchain=toolchain,
        )
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
    return (
        key.kernel,
        key.problem,
        key.chip,
        asked.is_default,
        None if asked.is_default else asked.config,
    )


def _known(prior: PriorConfig, check: Check | None) -> PriorConfig:
    """With what became of it at the revision; its key is that of the source there."""
    if check is None:
        return prior
    if check.winner is None:
        is_known = check.cause in (Unchecked.NO_KERNEL, Unchecked.NO_PROBLEM)
        cause = Unchecked.NO_BASELINE if is_known else Unchecked.NO_ANSWER
        return replace(prior, why=check.detail, cause=cause)
    return replace(prior, key=check.target, outcome=check.winner)


def _warn_of(revision: Revision, warn: Callable[[str], None]) -> None:
    for name in revision.missing:
        warn(
            f"the submodule {name} of {revision.commit} is not in this clone: its files are those "
            "of the working tree (git fetch in it gets them)"
        )
