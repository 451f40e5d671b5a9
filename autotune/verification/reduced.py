"""The small problems that a config is run on: they keep what can go wrong."""

from collections.abc import Iterable
from math import lcm

from autotune.config import Config
from autotune.kernel import Kernel
from autotune.problem import Problem

BLOCK_COUNTS = (2, 3)
"""Blocks on every axis that has as many. Two show what crosses a block, three what is right for
one count only and what is lost between the first and the last."""


def reduced_problems(kernel: Kernel, problem: Problem, config: Config) -> list[Problem]:
    """The problem with :data:`BLOCK_COUNTS` blocks on each axis, without doubles."""
    small = kernel.reduced(problem) if kernel.reduced else problem
    found = [_with_blocks(kernel, small, problem, config, count) for count in BLOCK_COUNTS]
    return list(dict.fromkeys(found))


def _with_blocks(
    kernel: Kernel, small: Problem, problem: Problem, config: Config, count: int
) -> Problem:
    """``count`` blocks on each axis that has as many, the last one ragged where the real one is.

    Where the kernel refuses that (causal attention needs as many keys as queries), one dimension
    gets as long as the longest; failing that, dimensions keep their full size.
    """
    blocks = _blocks_by_dim(kernel, config)
    found = small.with_dims(**{d: _extent(problem[d], blocks[d], count) for d in blocks})
    if _accepts(kernel, found):
        return found
    longest = max(found[dim] for dim in blocks)
    for dim in blocks:
        enough = -(-longest // max(blocks[dim]))
        longer = found.with_dims(**{dim: _extent(problem[dim], blocks[dim], enough)})
        if _accepts(kernel, longer):
            return longer
    for dim in blocks:
        found = found.with_dims(**{dim: problem[dim]})
        if _accepts(kernel, found):
            break
    return found


def _accepts(kernel: Kernel, problem: Problem) -> bool:
    return kernel.check is None or kernel.check(problem) is None


def _blocks_by_dim(kernel: Kernel, config: Config) -> dict[str, list[int]]:
    """The block sizes that cut each dimension."""
    found: dict[str, list[int]] = {}
    values = dict(config.axes)
    for axis in kernel.axes:
        size = values[axis.name]
        if axis.dim is not None and isinstance(size, int):
            found.setdefault(axis.dim, []).append(size)
    return found


def _extent(extent: int, blocks: Iterable[int], count: int) -> int:
    """Whole blocks of every size where all divide the extent; else the largest block decides."""
    sizes = list(blocks)
    if all(extent % size == 0 for size in sizes):
        step, most = lcm(*sizes), max(sizes)
        return min(extent, -(-count * most // step) * step)
    return min(extent, max(size * (count - 1) + (extent % size or size) for size in sizes))
