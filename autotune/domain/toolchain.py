"""The versions that together decide what a kernel compiles to."""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.version import Version


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Toolchain:
    """jax, jaxlib and libtpu versions, as the process that compiles reports them."""

    jax: str
    jaxlib: str
    libtpu: str

    @property
    def parsed(self) -> tuple["Version", ...]:
        """jax, libtpu and jaxlib, to be compared: what decides most comes first."""
        return tuple(map(_parsed, (self.jax, self.libtpu, self.jaxlib)))

    def __str__(self) -> str:
        return f"jax {self.jax}, jaxlib {self.jaxlib}, libtpu {self.libtpu}"


@lru_cache(maxsize=1_000)
def _parsed(version: str) -> "Version":
    """0 for what is no version."""
    from packaging.version import InvalidVersion, Version  # a client starts without it

    try:
        return Version(version)
    except InvalidVersion:
        return Version("0")


def installed_toolchain() -> Toolchain | None:
    """Versions of the installed jax, jaxlib and libtpu, read without importing them; None where one
    is missing."""
    from importlib.metadata import PackageNotFoundError, version  # a client starts without it

    try:
        return Toolchain(jax=version("jax"), jaxlib=version("jaxlib"), libtpu=version("libtpu"))
    except PackageNotFoundError:
        return None
