"""How far two toolchains are from each other, which is the nearest, and which is newer.

Not in the domain: what compiles under another interpreter imports that, and may lack ``packaging``.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING

from autotune.domain.compiler_options import differing
from autotune.domain.key import Toolchain
from autotune.domain.record import Record

if TYPE_CHECKING:
    from packaging.version import Version


def nearest_toolchain(asked: Toolchain, records: Iterable[Record]) -> Record:
    """That with the fewest other compiler options, then by its versions: the first part that
    differs decides, in jax, then libtpu, then jaxlib; of two that are equally far the newer."""
    gaps = [(_gaps(asked, record.key.toolchain), record) for record in records]
    least = min(gap for gap, _ in gaps)
    closest = [record for gap, record in gaps if gap == least]
    return max(
        closest, key=lambda record: (versions_of(record.key.toolchain), record.key.toolchain)
    )


def _gaps(asked: Toolchain, tuned: Toolchain) -> list[list[int]]:
    pairs = zip(versions_of(asked), versions_of(tuned), strict=True)
    gaps = [
        [abs(x - y) for x, y in zip_longest(version.release, other.release, fillvalue=0)]
        for version, other in pairs
    ]
    return [[len(differing(asked.options, tuned.options))], *gaps]


def versions_of(toolchain: Toolchain) -> tuple["Version", ...]:
    """jax, libtpu and jaxlib, to be compared: what decides most comes first."""
    return tuple(map(_version, (toolchain.jax, toolchain.libtpu, toolchain.jaxlib)))


@lru_cache(maxsize=1_000)
def _version(text: str) -> "Version":
    """0 for what is no version."""
    from packaging.version import Version  # a client starts without it

    try:
        return Version(text)
    except ValueError:  # more digits than Python reads are no version either
        return Version("0")
