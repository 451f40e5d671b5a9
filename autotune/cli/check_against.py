"""``autotune check --against``: what a change of the source does to kernels of a working tree."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

from autotune.catalogue.discovery import catalogue, find_kernel
from autotune.checking.against import RevisionCheck, kernels_here, priors_of
from autotune.checking.prior import PriorConfig, prior_of
from autotune.checking.run import CheckRun
from autotune.checking.selection import VersionFilter, selected
from autotune.cli.check_upgrade import find_records, find_refs, progress_lines
from autotune.cli.options import new_pool, open_database
from autotune.cli.output import echo
from autotune.domain.check import Check
from autotune.domain.chip import Chip
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.record import Record
from autotune.errors import InvalidInputError, ServiceError, StoreError
from autotune.lookups.bundle import bundle_from_bytes, read_bundle
from autotune.ports.compilers import Compilers
from autotune.remote.http import Remote

_DOWNLOAD_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstCheck:
    """What is compared, as the command line says it. Nothing of it is published, or kept."""

    against: str
    kernels: Sequence[str]
    chips: Sequence[Chip]
    shapes: Sequence[str]
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

    def _published(self) -> list[Record] | None:
        """The records to compare with; None where it is a revision."""
        if self.against.startswith(("http://", "https://")):
            return _of_service(self.against)
        return (
            list(read_bundle(Path(self.against)).records) if Path(self.against).is_file() else None
        )

    def _with_records(
        self, compilers: Compilers, records: Sequence[Record], place: Path
    ) -> list[Check]:
        if self.shapes:
            raise InvalidInputError("--shape is for a revision: records have their problems")
        with _store(place / "now.db") as store:
            refs = find_refs(compilers, store, self.kernels, records)
            chosen = [prior_of(record) for record in self._chosen(records, refs)]
            if not chosen:
                other = "an installed kernel: name its file, path/to/file.py:NAME"
                wanted = ", ".join(refs) or other
                raise InvalidInputError(f"{self.against} has no record of {wanted}")
            run = CheckRun(compilers=compilers, store=store, refs=refs, against=self.against)
            return run.run(chosen, (), progress_lines(len(chosen)))

    def _with_revision(self, new: Any, compilers: Compilers, place: Path) -> list[Check]:
        if self.shapes and not (self.kernels and self.chips):
            raise InvalidInputError("--shape is of a KERNEL and a --chip: name both")
        refs = self._own_refs(compilers)
        asked = self._asked(compilers, refs)
        stores = iter((_store(place / "before.db"), _store(place / "now.db")))
        check = RevisionCheck(
            revision=self.against,
            new_compilers=new,
            new_store=lambda: next(stores),
        )
        progress = progress_lines(len(asked))
        return check.run(compilers, refs, asked, progress, lambda line: echo(line, err=True))

    def _own_refs(self, compilers: Compilers) -> dict[str, KernelRef]:
        if self.kernels:
            return {compilers.describe(ref).name: ref for ref in map(find_kernel, self.kernels)}
        return kernels_here(catalogue(), Path.cwd())

    def _asked(self, compilers: Compilers, refs: Mapping[str, KernelRef]) -> list[PriorConfig]:
        records = self._chosen(self._known_records(), refs)
        asked: list[PriorConfig] = []
        for ref in refs.values():
            spec = compilers.describe(ref)
            problems = [
                (spec.problems.parse(shape, self.dtype, self.options), chip)
                for shape in self.shapes
                for chip in self.chips
            ]
            asked += priors_of(spec, compilers.toolchain(), problems, records)
        if not asked:
            raise InvalidInputError(
                f"there is no problem to compare {', '.join(refs)} for: give --shape and --chip, "
                "or --bundle FILE with records"
            )
        return asked

    def _known_records(self) -> list[Record]:
        """Problems that are worth comparing, and their tuned configs."""
        if self.bundle is None and self.database is None and self.shapes:
            return []
        try:
            with open_database(self.database, create=self.bundle is not None) as store:
                return find_records(store, self.bundle)
        except StoreError:
            if self.database is None and self.bundle is None:
                return []
            raise

    def _chosen(self, records: Sequence[Record], refs: Mapping[str, KernelRef]) -> list[Record]:
        return selected(
            [one for one in records if one.key.kernel in refs],
            chips=self.chips,
            made_with=self.made_with,
        )


def _of_service(url: str) -> list[Record]:
    """All that is published there."""
    try:
        content = Remote(url, _DOWNLOAD_S).call("GET", "/v1/snapshots/latest")
    except (OSError, HTTPException) as error:
        raise ServiceError(f"the service at {url} cannot be used: {error}") from error
    return list(bundle_from_bytes(content, f"the snapshot of {url}").records)


def _store(path: Path) -> AbstractContextManager[Any]:
    store: AbstractContextManager[Any] = open_database(str(path), create=True)
    return store
