"""What the declarations of several kernels have in common: conditions, and their inputs."""

from collections.abc import Callable
from typing import Any

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


def equal_groups(problem: Problem) -> Any:
    """Rows of each group, about as many each: int32 [groups], of sum m."""
    groups = problem["groups"]
    return np.diff(np.arange(groups + 1) * problem["m"] // groups).astype(np.int32)


def page_table(used: Any, pages: int) -> Any:
    """Where each page of each sequence is, ``used`` of them in any order: int32 [seqs, pages]."""
    table = np.zeros((len(used), pages), np.int32)
    table[np.arange(pages) < used[:, None]] = np.random.default_rng(0).permutation(used.sum())
    return table
