"""``autotune check --against``: what a change of the source does to kernels of a working tree."""

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from autotune.answering.bundle import RecordBundle, read_bundle
from autotune.cli.check_upgrade import (
    find_published,
    find_refs,
    is_url,
    name_of,
    of_service,
    progress_lines,
)
from autotune.cli.options import new_pool, open_database
from autotune.cli.output import echo
from autotune.declaring.calls.from_problem import call_of
from autotune.declaring.discovery import catalogue, find_kernel
from autotune.domain.check import Check
from autotune.domain.chip import Chip
from autotune.domain.compilers import Compilers, DescribeKernel, DescribeToolchain, ProblemOfCall
from autotune.domain.errors import InvalidInputError, StoreError
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.problem import Problem
from autotune.domain.record import Record
from autotune.publishing.checking.against import RevisionCheck, kernels_here, priors_of
from autotune.publishing.checking.prior import PriorConfig, prior_of
from autotune.publishing.checking.run import CheckRun
from autotune.publishing.checking.selection import VersionFilter, selected


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstCheck:
    """What is compared, as the command line says it. Nothing of it is published, or kept."""

    against: str
    kernels: Sequence[str]
    chips: Sequence[Chip]
    shapes: Sequence[str]
    calls: Sequence[str]
    dtype: str | None
    options: Sequence[str]
    made_with: VersionFilter | None
    bundle: str | None
    database: str | None

    def ask(self, pythons: Sequence[str], pool: Mapping[str, Any]) -> list[Check]:
        """``pool``: what ``new_pool`` takes beside the interpreter."""
        published = self._published()
        found: list[Check] = []
        with tempfile.TemporaryDirectory(prefix="autotune-check-") as folder:
            for number, python in enumerate(pythons):
                place = Path(folder) / str(number)
                place.mkdir()
                new = partial(new_pool, **pool, python=python)
                with new() as compilers:
                    if published is None:
                        found += self._with_revision(new, compilers, place)
                    else:
                        found += self._with_records(compilers, published, place)
        return found

    def _published(self) -> RecordBundle | None:
        """The records to compare with; None where it is a revision."""
        if is_url(self.against):
            return of_service(self.against)
        return read_bundle(Path(self.against)) if Path(self.against).is_file() else None

    def _with_records(
        self, compilers: Compilers, published: RecordBundle, place: Path
    ) -> list[Check]:
        if self.shapes or self.calls:
            raise InvalidInputError(
                "--shape and --args are for a revision: records have their problems"
            )
        records, specs = published.records, published.kernels
        with _store(place / "now.db") as store:
            refs = find_refs(compilers, store, self.kernels, records, specs)
            chosen = [prior_of(record, specs) for record in self._chosen(records, refs)]
            if not chosen:
                other = "an installed kernel: name its file, path/to/file.py:NAME"
                wanted = ", ".join(refs) or other
                raise InvalidInputError(f"{self.against} has no record of {wanted}")
            run = CheckRun(compilers=compilers, store=store, refs=refs, against=self.against)
            return run.run(chosen, (), progress_lines(len(chosen)))

    def _with_revision(self, new: Any, compilers: Compilers, place: Path) -> list[Check]:
        if (self.shapes or self.calls) and not (self.kernels and self.chips):
            raise InvalidInputError("--shape and --args are of a KERNEL and a --chip: name both")
        known = self._known()
        refs = self._own_refs(compilers, *known)
        asked = self._asked(compilers, refs, *known)
        stores = iter((_store(place / "before.db"), _store(place / "now.db")))
        check = RevisionCheck(
            revision=self.against,
            new_compilers=new,
            new_store=lambda: next(stores),
        )
        progress = progress_lines(len(asked))
        return check.run(compilers, refs, asked, progress, lambda line: echo(line, err=True))

    def _own_refs(
        self, compilers: Compilers, records: Sequence[Record], specs: Sequence[KernelSpec]
    ) -> dict[str, KernelRef]:
        if not self.kernels:
            return kernels_here(catalogue(), Path.cwd())
        found = [find_kernel(name) for name in self.kernels]
        if self.calls:
            called = {
                r: compilers.ask(DescribeKernel(ref=replace(r, call=self.calls[0]))) for r in found
            }
            return {spec.name: ref for ref, spec in called.items()}
        return {name_of(compilers, ref, records, specs): ref for ref in found}

    def _asked(
        self,
        compilers: Compilers,
        refs: Mapping[str, KernelRef],
        records: Sequence[Record],
        specs: Sequence[KernelSpec],
    ) -> list[PriorConfig]:
        """Of each kernel, one form of call after the other."""
        asked: list[PriorConfig] = []
        for name, ref in refs.items():
            by_call: dict[str, list[Record]] = {call: [] for call in self.calls}
            if self.shapes:
                by_call[""] = []
            for record in self._chosen(records, (name,)):
                by_call.setdefault(call_of(specs, record.key), []).append(record)
            for call, own in by_call.items():
                spec = compilers.ask(DescribeKernel(ref=replace(ref, call=call)))
                problems = list(self._problems(compilers, replace(ref, call=call), spec))
                asked += priors_of(spec, compilers.ask(DescribeToolchain()), problems, own, call)
        if not asked:
            raise InvalidInputError(
                f"there is no problem to compare {', '.join(refs)} for: give --shape and --chip, "
                "of a decorated function --args, or --bundle FILE with records"
            )
        return asked

    def _problems(
        self, compilers: Compilers, ref: KernelRef, spec: KernelSpec
    ) -> Iterator[tuple[Problem, Chip]]:
        if ref.call in self.calls:
            yield from ((compilers.ask(ProblemOfCall(ref=ref)), chip) for chip in self.chips)
        elif not ref.call:
            for shape in self.shapes:
                problem = spec.problems.parse(shape, self.dtype, self.options)
                yield from ((problem, chip) for chip in self.chips)

    def _known(self) -> tuple[Sequence[Record], Sequence[KernelSpec]]:
        """Problems that are worth comparing, and their tuned configs."""
        asked = self.shapes or self.calls
        if self.bundle is None and self.database is None and asked:
            return [], []
        try:
            with open_database(self.database, create=self.bundle is not None) as store:
                return find_published(store, self.bundle)
        except StoreError:
            if self.database is None and self.bundle is None:
                return [], []
            raise

    def _chosen(self, records: Iterable[Record], kernels: Collection[str]) -> list[Record]:
        return selected(
            [record for record in records if record.key.kernel in kernels],
            chips=self.chips,
            made_with=self.made_with,
        )


def _store(path: Path) -> AbstractContextManager[Any]:
    store: AbstractContextManager[Any] = open_database(str(path), create=True)
    return store
