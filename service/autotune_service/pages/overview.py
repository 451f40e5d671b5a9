"""The first page: where something is tuned, and where not."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from autotune.domain.browsing import TargetCount
from autotune.domain.chip import Chip
from autotune.domain.toolchain import Toolchain
from autotune.lookups.versions import versions_of
from autotune_service.pages.filters import toolchain_name
from autotune_service.pages.render import link
from autotune_service.snapshot_cache import Place as Published


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageCell:
    """Of one kernel on one chip with one toolchain."""

    searched: int
    published: int
    link: str

    @property
    def state(self) -> str:
        if not self.searched and not self.published:
            return "none"
        return "all" if self.published >= self.searched else "some" if self.published else "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageColumn:
    toolchain: Toolchain
    chips: tuple[Chip, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageTable:
    """``rows``: each kernel with a cell for each chip of each column."""

    columns: tuple[CoverageColumn, ...]
    rows: tuple[tuple[str, tuple[CoverageCell, ...]], ...]


def coverage(
    places: Sequence[TargetCount],
    published: "Counter[Published]",
    kernels: Sequence[str],
    only: Toolchain | None,
) -> CoverageTable:
    """Also kernels that were described and never searched."""
    searched = Counter({(p.kernel, p.chip, p.toolchain): p.searched for p in places})
    there = {place for place in {*searched, *published} if only in (None, place[2])}
    toolchains = newest_first({place[2] for place in there})
    columns = tuple(
        CoverageColumn(toolchain=one, chips=tuple(sorted({p[1] for p in there if p[2] == one})))
        for one in toolchains
    )
    names = sorted({place[0] for place in there} | set(kernels if only is None else ()))
    rows = []
    for name in names:
        found = [(name, chip, c.toolchain) for c in columns for chip in c.chips]
        rows.append((name, tuple(_cell(searched[p], published[p], *p) for p in found)))
    return CoverageTable(columns=columns, rows=tuple(rows))


def newest_first(toolchains: set[Toolchain]) -> list[Toolchain]:
    return sorted(toolchains, key=lambda one: (versions_of(one), one), reverse=True)


def _cell(
    searched: int, published: int, kernel: str, chip: Chip, toolchain: Toolchain
) -> CoverageCell:
    where = link(kernel_path(kernel), chip=chip.value, toolchain=toolchain_name(toolchain))
    return CoverageCell(searched=max(searched, published), published=published, link=where)


def kernel_path(name: str) -> str:
    """Names come from outside: only letters, digits and ``_.-~`` stand as they are."""
    return f"/kernels/{quote(name, safe='')}"
