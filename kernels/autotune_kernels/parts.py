"""What the declarations of several kernels have in common: conditions, inputs, and packages that
need not be there. These are imported when they are used, never copied."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import numpy as np

from autotune import Array, Config, Problem


def not_multiple(problem: Problem, dim: str, of: str | int) -> str | None:
    """A sentence where a dimension is no multiple of another, or of a number; else None."""
    least = problem[of] if isinstance(of, str) else of
    wanted = f"{of}={least}" if isinstance(of, str) else of
    return f"{dim}={problem[dim]} must be a multiple of {wanted}" if problem[dim] % least else None


def dividing(parts: dict[str, str]) -> Callable[[Problem, Config], str | None]:
    """A constraint: the axis of each pair divides the one that it is a part of, where both are."""

    def constraint(_: Problem, config: Config) -> str | None:
        axes = dict(config.axes)
        pairs = [(part, whole) for part, whole in parts.items() if whole in axes]
        broken = (pair for pair in pairs if config[pair[1]] % config[pair[0]])
        return next((f"{part} must divide {whole}" for part, whole in broken), None)

    return constraint


def arrays(problem: Problem, **shapes: tuple[int, ...]) -> list[Array]:
    """Arguments of the problem's element type."""
    return [Array(name=name, shape=shapes[name], dtype=problem.dtype) for name in shapes]


def page_table(used: Any, pages: int) -> Any:
    """Where each page of each sequence is, ``used`` of them in any order: int32 [seqs, pages]."""
    table = np.zeros((len(used), pages), np.int32)
    table[np.arange(pages) < used[:, None]] = np.random.default_rng(0).permutation(used.sum())
    return table


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


_DEVICES = {"v5p": "TPU v5", "v7x": "TPU v7"}


@contextmanager
def told(*modules: Any, chip: str = "") -> Iterator[None]:
    """Their ``get_tpu_version`` and ``get_device_name`` speak of ``chip``, or of the TPU that the
    code is traced for: they look at the first device of this machine, which has none."""
    chip = chip or _chip()
    version, device = int(chip[1]), _DEVICES.get(chip, f"TPU {chip}")
    answers = {"get_tpu_version": lambda: version, "get_device_name": lambda: device}
    with ExitStack() as stack:
        for module in modules:
            for name, answer in answers.items():
                if hasattr(module, name):
                    stack.enter_context(patch.object(module, name, answer))
        yield


def telling(function: Callable[..., Any], *modules: Any) -> Callable[..., Any]:
    """``function`` with that told while it is traced."""

    @wraps(function)
    def traced(*given: Any) -> Any:
        with told(*modules):
            return function(*given)

    return traced


def _chip() -> str:
    """The TPU that code under trace is told of; a v6e where it is told of none."""
    from jax.experimental.pallas import tpu as pltpu

    try:
        return f"v{pltpu.get_tpu_info().chip_version}".replace("vv", "v")
    except (ValueError, NotImplementedError):
        return "v6e"
