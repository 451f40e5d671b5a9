"""What ``autotune check`` asks: of what is published, under other versions of JAX or on other
chips, or of the source of a working tree, beside another one."""

import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPException
from itertools import product
from pathlib import Path
from typing import Any

from autotune.answering.bundle import RecordBundle, bundle_from_bytes, read_bundle
from autotune.answering.http import Remote
from autotune.cli.problems import places, read_problem
from autotune.cli.shared import interpreter_of, new_pool, open_database
from autotune.declaring.calls.text import call_of
from autotune.declaring.discovery import catalogue, find_kernel, installed_kernels
from autotune.domain import errors
from autotune.domain.arguments import ProblemWords
from autotune.domain.compilers import Compilers, DescribeKernel, DescribeToolchain, ReadProblem
from autotune.domain.key import Chip, KernelRef, KernelSpec
from autotune.domain.problem import Problem
from autotune.domain.record import Check, Record
from autotune.domain.workload import load_workload
from autotune.publishing.checking.against import compare_revision, kernels_here, priors_of
from autotune.publishing.checking.record_check import PriorConfig, prior_of
from autotune.publishing.checking.run import CheckRun, publish_all_checked, retune_each
from autotune.publishing.checking.selection import VersionFilter, selected
from autotune.publishing.publish import Publication
from autotune.publishing.task import Plan, TuningObserver, invalid_problem, named_problem
from autotune.searching.subject import SearchLimits
from autotune.wording.bars import terminal_observer
from autotune.wording.match import subject_line
from autotune.wording.outcome import error_text
from autotune.wording.output import echo
from autotune.wording.publication import publication_reason

_DOWNLOAD_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckQuestion:
    """What is checked, as the command line says it. ``trials``: of each search of ``retune``;
    ``workload``: the file of one whose problems alone are checked; ``against``: what sources are
    compared with, of which nothing is published or kept; ``words``: problems beside those of
    records."""

    kernels: Sequence[str]
    chips: Sequence[Chip]
    made_with: VersionFilter | None
    bundle: str | None
    database: str | None
    workload: Path | None
    verify: bool
    retune: bool
    xla: bool
    trials: int
    against: str | None
    words: Sequence[ProblemWords]

    def ask(self, pythons: Sequence[str], pool: Mapping[str, Any]) -> list[Check]:
        """``pool``: what ``new_pool`` takes beside the interpreter."""
        new_compilers = [partial(new_pool, **pool, python=python) for python in pythons]
        if self.against is not None:
            return self._compared(self.against, new_compilers)
        checks: list[Check] = []
        with open_database(self.database, create=self.bundle is not None) as store:
            published = find_published(store, self.bundle)
            for new in new_compilers:
                with new() as compilers:
                    checks += self._under(compilers, store, *published)
        return checks

    def step_lines(
        self, pythons: Sequence[str], checks: Sequence[Check], pool: Mapping[str, Any]
    ) -> Iterator[str]:
        """Of the step that the workload names, with this interpreter and with the others: on each
        chip that was checked, with what is published."""
        from autotune.cli.step import step_of
        from autotune.wording.step import tuned_line
        from autotune_db.url import parse_database

        workload = self.workload
        pythons = [python for python in pythons if python != sys.executable]
        chips = sorted({check.chip for check in checks})
        step = workload and step_of(load_workload(workload), workload.parent, chips)
        if not step or not pythons:
            return
        source = self.bundle or parse_database(self.database).full_url
        ways = [(python, source) for python in (sys.executable, *pythons)]
        without_ray = {name: value for name, value in pool.items() if name != "ray"}
        for before, after in step.pairs(ways, silent=False, **without_ray):
            yield tuned_line(before, after)

    def _compared(self, against: str, new_compilers: Sequence[Callable[[], Any]]) -> list[Check]:
        published = _published(against)
        checks: list[Check] = []
        with tempfile.TemporaryDirectory(prefix="autotune-check-") as folder:
            for number, new in enumerate(new_compilers):
                place = Path(folder) / str(number)
                place.mkdir()
                with new() as compilers:
                    if published is None:
                        checks += self._with_revision(against, new, compilers, place)
                    else:
                        checks += self._with_records(against, compilers, published, place)
        return checks

    def _under(
        self,
        compilers: Compilers,
        store: Any,
        records: Sequence[Record],
        specs: Sequence[KernelSpec],
    ) -> list[Check]:
        refs = find_refs(compilers, store, self.kernels, records, specs)
        kernels = list(refs) if self.kernels else ()
        problems = None
        if self.workload is not None:
            problems = set()
            for name, ref, problem in _named_problems(compilers, self.workload):
                refs[name] = replace(ref, call="")
                problems.add((name, problem))
        chosen = selected(
            records,
            not_with=None if self.chips else compilers.ask(DescribeToolchain()),
            kernels=kernels,
            problems=problems,
            made_with=self.made_with,
        )
        run = CheckRun(compilers=compilers, store=store, refs=refs, xla=self.xla)
        searched = store.searches.progress
        priors = [prior_of(record, specs, searched(record.key).asked) for record in chosen]
        progress = progress_lines(len(run.pairs(priors, self.chips)))
        checks = run.run(priors, self.chips, progress)
        if self.verify:
            checks = publish_all_checked(
                compilers, store, checks, chosen, refs, _verifying, partial(echo, err=True)
            )
        if self.retune:
            plan = Plan(limits=SearchLimits(trials=self.trials))
            retune_each(compilers, store, plan, checks, refs, _searching, _say_retuned)
        return checks

    def _with_records(
        self, against: str, compilers: Compilers, published: RecordBundle, place: Path
    ) -> list[Check]:
        if self.words:
            raise errors.InvalidInputError(
                "--shape and --args are for a revision: records have their problems"
            )
        records, specs = published.records, published.kernels
        with open_database(str(place / "now.db"), create=True) as store:
            refs = find_refs(compilers, store, self.kernels, records, specs)
            chosen = [prior_of(record, specs) for record in self._chosen(records, refs)]
            if not chosen:
                other = "an installed kernel: name its file, path/to/file.py:NAME"
                wanted = ", ".join(refs) or other
                raise errors.InvalidInputError(f"{against} has no record of {wanted}")
            run = CheckRun(
                compilers=compilers, store=store, refs=refs, against=against, hear=self._hear
            )
            return run.run(chosen, (), progress_lines(len(chosen)))

    def _with_revision(
        self, against: str, new: Any, compilers: Compilers, place: Path
    ) -> list[Check]:
        if self.words and not (self.kernels and self.chips):
            raise errors.InvalidInputError(
                "--shape and --args are of a KERNEL and a --chip: name both"
            )
        known = self._known()
        refs = self._own_refs(compilers, *known)
        asked = self._asked(compilers, refs, *known)
        stores = (open_database(str(place / f), create=True) for f in ("before.db", "now.db"))
        progress = progress_lines(len(asked))
        return compare_revision(
            against, new, lambda: next(stores), compilers, refs, asked, progress, self._hear
        )

    @property
    def _hear(self) -> Callable[[str], None] | None:
        return partial(echo, err=True) if self.verify else None

    def _own_refs(
        self, compilers: Compilers, records: Sequence[Record], specs: Sequence[KernelSpec]
    ) -> dict[str, KernelRef]:
        if not self.kernels:
            return kernels_here(catalogue(), Path.cwd())
        named = [find_kernel(name) for name in self.kernels]
        if self.words:
            called = {ref: read_problem(compilers, ref, self.words[0])[0] for ref in named}
            return {spec.name: ref for ref, spec in called.items()}
        return {name_of(compilers, ref, records, specs): ref for ref in named}

    def _asked(
        self,
        compilers: Compilers,
        refs: Mapping[str, KernelRef],
        records: Sequence[Record],
        specs: Sequence[KernelSpec],
    ) -> list[PriorConfig]:
        """Of each kernel, one form of call after the other."""
        asked: list[PriorConfig] = []
        toolchain = compilers.ask(DescribeToolchain())
        for name, ref in refs.items():
            by_call: dict[str, tuple[list[Problem], list[Record]]] = {}
            for words in self.words:
                call, problem = compilers.ask(ReadProblem(ref=ref, words=words))
                by_call.setdefault(call, ([], []))[0].append(problem)
            for record in self._chosen(records, (name,)):
                by_call.setdefault(call_of(specs, record.key), ([], []))[1].append(record)
            for call, (problems, called) in by_call.items():
                spec = compilers.ask(DescribeKernel(ref=replace(ref, call=call)))
                pairs = list(product(problems, self.chips))
                asked += priors_of(spec, toolchain, pairs, called, call)
        if not asked:
            raise errors.InvalidInputError(
                f"there is no problem to compare {', '.join(refs)} for: give --shape or --args "
                "and --chip, or --bundle FILE with records"
            )
        return asked

    def _known(self) -> tuple[Sequence[Record], Sequence[KernelSpec]]:
        """Problems that are worth comparing, and their tuned configs."""
        if self.bundle is None and self.database is None and self.words:
            return [], []
        try:
            with open_database(self.database, create=self.bundle is not None) as store:
                return find_published(store, self.bundle)
        except errors.StoreError:
            if self.database is None and self.bundle is None:
                return [], []
            raise

    def _chosen(self, records: Iterable[Record], kernels: Collection[str]) -> list[Record]:
        return selected(
            [record for record in records if record.key.kernel in kernels],
            chips=self.chips,
            made_with=self.made_with,
        )


def _say_retuned(done: Publication | errors.NoLegalConfigError) -> None:
    if isinstance(done, errors.NoLegalConfigError):
        echo(f"not searched: {error_text(done)}", err=True)
    else:
        echo(publication_reason(done), err=True)


def _named_problems(compilers: Compilers, path: Path) -> Iterator[tuple[str, KernelRef, Problem]]:
    """Of a workload's file, each with its kernel. What is wrong with the others is said."""
    workload = load_workload(path)
    for invalid in workload.invalid:
        echo(f"not checked: {invalid}", err=True)
    for asked in workload.problems:
        try:
            ref, words = named_problem(asked, path.parent)
            spec, problem = read_problem(compilers, ref, words)
        except errors.AutotuneError as error:
            echo(f"not checked: {invalid_problem(asked, error)}", err=True)
        else:
            yield spec.name, ref, problem


def progress_lines(total: int) -> Callable[[Check], None]:
    done: list[Check] = []

    def say(check: Check) -> None:
        done.append(check)
        echo(f"{len(done)}/{total} {check.verdict}: {subject_line(check)}", err=True)

    return say


def find_interpreters(
    releases: Sequence[str], interpreters: Sequence[str], ray: str | None
) -> list[str]:
    """The interpreters to compile under; this one where none is named."""
    named = [interpreter_of(release, ray) for release in releases]
    return [*named, *interpreters] or [sys.executable]


def find_published(store: Any, bundle: str | None) -> tuple[Sequence[Record], Sequence[KernelSpec]]:
    """What is in a file, or published by a service, else in the database; and what is known of the
    kernels."""
    if bundle is None:
        return store.records(claimed=True), store.kernels()
    published = _published(bundle) or read_bundle(Path(bundle))
    return published.records, published.kernels


def _published(place: str) -> RecordBundle | None:
    """All that a service has, or a file; None where it is neither."""
    if not place.startswith(("http://", "https://")):
        return read_bundle(Path(place)) if Path(place).is_file() else None
    try:
        content = Remote(place, _DOWNLOAD_S).call("GET", "/v1/snapshots/latest")
    except (OSError, HTTPException) as error:
        raise errors.ServiceError(f"the service at {place} cannot be used: {error}") from error
    return bundle_from_bytes(content, f"the snapshot of {place}")


def find_refs(
    compilers: Compilers,
    store: Any,
    kernels: Sequence[str],
    records: Sequence[Record],
    specs: Sequence[KernelSpec] = (),
) -> dict[str, KernelRef]:
    """Where kernels are, by the name that their records have; without names those of the catalogue,
    and of files those that were searched from there."""
    searched = places(store, [record.key for record in records])
    if kernels:
        names = {ref: name for name, ref in searched.items()}
        refs = [find_kernel(name) for name in kernels]
        return {names.get(ref) or name_of(compilers, ref, records, specs): ref for ref in refs}
    published = {record.key.kernel for record in records}
    known = installed_kernels()
    return {name: ref for name, ref in {**known, **searched}.items() if name in published}


def name_of(
    compilers: Compilers, ref: KernelRef, records: Iterable[Record], specs: Sequence[KernelSpec]
) -> str:
    """Of a kernel; of a decorated function that which its records have. Raises
    ``KernelImportError``."""
    try:
        return compilers.ask(DescribeKernel(ref=ref)).name
    except errors.NoDeclarationError:
        raise
    except errors.KernelImportError:
        for key in (record.key for record in records):
            with suppress(errors.AutotuneError):  # it is called otherwise
                call = call_of(specs, key)
                if (
                    call
                    and compilers.ask(DescribeKernel(ref=replace(ref, call=call))).name
                    == key.kernel
                ):
                    return key.kernel
        raise


def _verifying(check: Check) -> None:
    echo(f"verifying {subject_line(check)}", err=True)


def _searching(check: Check) -> TuningObserver:
    echo(f"searching {subject_line(check)}", err=True)
    return terminal_observer(silent=False)
