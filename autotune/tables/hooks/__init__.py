"""Where packages decide on block sizes while a model is traced: for each its releases, the lookup
that decides, what a call of it means in the words of the catalogue, and how tuned axes become what
it returns. ``autotune.python.install`` puts these into a process. No package is imported here.
"""

import os
from collections.abc import Iterable

from autotune.tables.hooks.from_jax import JAX
from autotune.tables.hooks.from_maxtext import MAXTEXT
from autotune.tables.hooks.from_tables import SGLANG_JAX, TPU_INFERENCE
from autotune.tables.hooks.from_tokamax import TOKAMAX
from autotune.tables.hooks.hook import Package

ENVIRONMENT = "AUTOTUNE_INSTALL"
PACKAGES = {package.name: package for package in (JAX, TOKAMAX, TPU_INFERENCE, SGLANG_JAX, MAXTEXT)}


def named_in_environment() -> list[str]:
    """By ``AUTOTUNE_INSTALL``."""
    return os.environ.get(ENVIRONMENT, "").replace(",", " ").split()


def unknown_packages(names: Iterable[object]) -> str:
    """Those that there are no hooks for, in words; empty where there are for all."""
    return ", ".join(str(name) for name in names if name not in list(PACKAGES))


def untouched(package: Package, release: str | None) -> str | None:
    """Why nothing of this installed release is touched; None where it is known."""
    if release in package.releases:
        return None
    known = f"known are {', '.join(package.releases)}"
    is_other = f"{package.name} {release} is left alone: {known}"
    return is_other if release else f"{package.name} is not installed ({known})"
