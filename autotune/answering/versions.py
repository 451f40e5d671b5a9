"""Which toolchain is newer, and how far two are apart. Not in the domain: what compiles under
another interpreter imports that, and may lack ``packaging``."""

from functools import lru_cache
from typing import TYPE_CHECKING

from autotune.domain.toolchain import Toolchain

if TYPE_CHECKING:
    from packaging.version import Version


def versions_of(toolchain: Toolchain) -> tuple["Version", ...]:
    """jax, libtpu and jaxlib, to be compared: what decides most comes first."""
    return tuple(map(_version, (toolchain.jax, toolchain.libtpu, toolchain.jaxlib)))


@lru_cache(maxsize=1_000)
def _version(text: str) -> "Version":
    """0 for what is no version."""
    from packaging.version import InvalidVersion, Version  # a client starts without it

    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")
