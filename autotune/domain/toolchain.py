"""The versions that together decide what a kernel compiles to."""

from dataclasses import dataclass

from autotune.domain.limits import Name


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Toolchain:
    """jax, jaxlib and libtpu versions, as the process that compiles reports them."""

    jax: Name
    jaxlib: Name
    libtpu: Name

    def __str__(self) -> str:
        return f"jax {self.jax}, jaxlib {self.jaxlib}, libtpu {self.libtpu}"


def installed_toolchain() -> Toolchain | None:
    """Versions of the installed jax, jaxlib and libtpu, read without importing them; None where one
    is missing."""
    from importlib.metadata import PackageNotFoundError, version  # a client starts without it

    try:
        return Toolchain(jax=version("jax"), jaxlib=version("jaxlib"), libtpu=version("libtpu"))
    except PackageNotFoundError:
        return None
