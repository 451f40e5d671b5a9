"""Which blocks a grid visits, in which order: the facts behind legality and HBM traffic."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

MAX_ENUMERATED_STEPS = 1 << 24
# steps: a block is waited for in the step after it is left, and fetched one ahead
_FETCHED_AFTER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    """See ``Operand``; ``elements`` are those that all fetches move, with padded edges."""

    varies: tuple[bool, ...]
    exclusive: tuple[bool, ...]
    fetches: int
    blocks: int
    elements: int
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockWalk:
    """Block indices of one operand at every grid point.

    ``index``: one array per array dimension, each broadcasting against the grid; None when it is
    not known. ``sizes``: elements of that dimension that a visit really moves, same shapes.
    """

    index: tuple[Any, ...]
    sizes: tuple[Any, ...]

    def permuted(self, order: Sequence[int]) -> "BlockWalk":
        """The same walk with the grid axes in another order."""
        return BlockWalk(
            index=tuple(None if i is None else np.transpose(i, order) for i in self.index),
            sizes=tuple(np.transpose(s, order) for s in self.sizes),
        )


def visits(walk: BlockWalk, grid: Sequence[int]) -> Visits:
    """Count the visits of a walk over a grid."""
    rank = len(grid)
    if not prod(grid):
        apart, alike = (True,) * rank, (False,) * rank
        return Visits(varies=alike, exclusive=apart, fetches=0, blocks=0, elements=0, exact=True)
    if any(index is None for index in walk.index):
        return _unknown(walk, grid)
    varies = tuple(
        any(
            index.shape[axis] > 1 and bool(np.any(np.diff(index, axis=axis)))
            for index in walk.index
        )
        for axis in range(rank)
    )
    walk = _collapsed(walk, varies)
    inner = max((axis for axis in range(rank) if varies[axis]), default=-1)
    leading = prod(grid[: inner + 1])
    if _is_injective(walk, varies, grid):
        blocks = prod(grid[axis] for axis in range(rank) if varies[axis])
        elements = round(leading * prod(float(np.mean(s)) for s in walk.sizes))
        exclusive = tuple(v or grid[a] == 1 for a, v in enumerate(varies))
        return Visits(
            varies=varies,
            exclusive=exclusive,
            fetches=leading,
            blocks=blocks,
            elements=elements,
            exact=True,
        )
    if leading > MAX_ENUMERATED_STEPS:
        return _unknown(walk, grid)
    return _enumerated(walk, grid, varies, inner)


def _collapsed(walk: BlockWalk, varies: tuple[bool, ...]) -> BlockWalk:
    """Size 1 along each axis on which the block stays: a clamped index has more and all equal."""
    keep = tuple(slice(None) if v else slice(0, 1) for v in varies)
    return BlockWalk(index=tuple(index[keep] for index in walk.index), sizes=walk.sizes)


def _is_injective(walk: BlockWalk, varies: tuple[bool, ...], grid: Sequence[int]) -> bool:
    """Each grid axis drives at most one dimension, all its positions different."""
    driven: set[int] = set()
    for index in walk.index:
        axes = [axis for axis in range(len(grid)) if index.shape[axis] > 1]
        if not axes or not np.any(np.diff(index.reshape(-1))):
            continue
        if len(axes) > 1 or axes[0] in driven:
            return False
        if np.unique(index).size != grid[axes[0]]:
            return False
        driven.add(axes[0])
    return driven == {axis for axis, v in enumerate(varies) if v}


def _enumerated(
    walk: BlockWalk, grid: Sequence[int], varies: tuple[bool, ...], inner: int
) -> Visits:
    ids = _block_ids(walk.index)
    leading = (*grid[: inner + 1], *([1] * (len(grid) - inner - 1)))
    flat = np.broadcast_to(ids, leading).reshape(-1)
    changed = np.concatenate(([True], flat[1:] != flat[:-1]))
    sizes = np.ones((1,) * len(grid), dtype=np.int64)
    for size in walk.sizes:
        sizes = sizes * size
    per_step = np.broadcast_to(sizes, np.broadcast_shapes(sizes.shape, leading))
    moved = per_step[tuple(slice(0, n) for n in leading)].reshape(-1)
    exclusive = tuple(grid[a] == 1 or _is_exclusive(ids, a, grid[a]) for a in range(len(grid)))
    return Visits(
        varies=varies,
        exclusive=exclusive,
        fetches=int(changed.sum()),
        blocks=int(np.unique(ids).size),
        elements=int(moved[changed].sum()),
        exact=True,
    )


def _block_ids(index: tuple[Any, ...]) -> Any:
    ids = np.zeros((1,) * index[0].ndim, dtype=np.int64)
    for dimension in index:
        low = int(dimension.min())
        ids = ids * (int(dimension.max()) - low + 1) + (dimension - low)
    return ids


def _is_exclusive(ids: Any, axis: int, extent: int) -> bool:
    """No block is visited at two positions of the axis."""
    if ids.shape[axis] != extent:
        return False
    rows = np.moveaxis(ids, axis, 0).reshape(extent, -1)
    return int(sum(np.unique(row).size for row in rows)) == int(np.unique(ids).size)


def _unknown(walk: BlockWalk, grid: Sequence[int]) -> Visits:
    """The cautious answer: a new block at each step, nothing exclusive."""
    steps = prod(grid)
    biggest = prod(int(np.max(size)) for size in walk.sizes)
    return Visits(
        varies=tuple(extent > 1 for extent in grid),
        exclusive=tuple(extent == 1 for extent in grid),
        fetches=steps,
        blocks=steps,
        elements=steps * biggest,
        exact=False,
    )


def same_walk(a: BlockWalk, b: BlockWalk) -> bool:
    """Both visit the same block at every grid point."""
    if len(a.index) != len(b.index) or any(i is None for i in (*a.index, *b.index)):
        return False
    return all(bool(np.all(i == j)) for i, j in zip(a.index, b.index, strict=True))


def comes_back_late(walk: BlockWalk, grid: Sequence[int]) -> bool:
    """Whether each block that is visited again was written before it is fetched again; not of more
    steps than are counted. Axes on which the block stays need no more than make it late."""
    seen = visits(walk, grid)
    if seen.fetches == seen.blocks:
        return seen.exact
    walk = _collapsed(walk, seen.varies)
    grid = [n if v else min(n, _FETCHED_AFTER) for n, v in zip(grid, seen.varies, strict=True)]
    if prod(grid) > MAX_ENUMERATED_STEPS:
        return False
    ids = np.broadcast_to(_block_ids(walk.index), grid).reshape(-1)
    first = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1])))
    last = np.append(first[1:], ids.size) - 1
    order = np.argsort(ids[first], kind="stable")
    again = np.diff(ids[first][order]) == 0
    return bool(np.all((first[order][1:] - last[order][:-1])[again] >= _FETCHED_AFTER))
