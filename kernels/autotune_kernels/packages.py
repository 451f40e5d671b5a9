"""Kernels of packages that need not be there: imported when they are used, never copied."""

import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from autotune import Problem

Check = Callable[[Problem], str | None]


def needing(package: str, install: str, check: Check = lambda _: None) -> Check:
    """``check`` of a problem where the package is there, else the sentence that it is not."""

    def checked(problem: Problem) -> str | None:
        if find_spec(package) is not None:
            return check(problem)
        return (
            f"{install} is not installed in the compiling interpreter: {sys.executable} -m pip "
            f"install {install}, or name another with --python"
        )

    return checked


def part(module: str) -> Any:
    """A module of such a package."""
    return importlib.import_module(module)
