"""What decides together what a kernel compiles to: versions, and options of the compiler."""

import os
from dataclasses import dataclass, replace
from typing import Annotated

from autotune.domain.codec import OmitDefault
from autotune.domain.compiler_options import (
    MOST_CHARACTERS,
    canonical,
    in_short,
    parsed,
    process_options,
)
from autotune.domain.limits import Limit, Name


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Toolchain:
    """jax, jaxlib and libtpu versions, as the process that compiles reports them. ``options``: of
    the compiler, in the form of ``autotune.domain.compiler_options``; empty for nearly all."""

    jax: Name
    jaxlib: Name
    libtpu: Name
    options: OmitDefault[Annotated[str, Limit(longest=MOST_CHARACTERS, printable=True)]] = ""

    def __post_init__(self) -> None:
        """Raises ``InvalidInputError`` for options that cannot be read."""
        if self.options:
            object.__setattr__(self, "options", canonical(parsed(self.options)))

    @property
    def parts(self) -> tuple[str, str, str, str]:
        """What tells it from others."""
        return self.jax, self.jaxlib, self.libtpu, self.options

    def __str__(self) -> str:
        return f"jax {self.jax}, jaxlib {self.jaxlib}, libtpu {self.libtpu}{self._with_options}"

    @property
    def label(self) -> str:
        """What is enough where many stand together."""
        return f"jax {self.jax}{self._with_options}"

    @property
    def _with_options(self) -> str:
        return f", {in_short(self.options)}" if self.options else ""


def installed_toolchain() -> Toolchain | None:
    """Versions of the installed jax, jaxlib and libtpu, read without importing them; None where one
    is missing."""
    from importlib.metadata import PackageNotFoundError, version  # a client starts without it

    try:
        return Toolchain(jax=version("jax"), jaxlib=version("jaxlib"), libtpu=version("libtpu"))
    except PackageNotFoundError:
        return None


def process_toolchain() -> Toolchain | None:
    """The same with the compiler options of this process: what its own programs are compiled with.
    Raises ``InvalidInputError`` for options that cannot be read."""
    installed = installed_toolchain()
    return installed and replace(installed, options=canonical(process_options(os.environ)))
