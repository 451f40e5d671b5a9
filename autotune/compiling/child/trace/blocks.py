"""What a ``BlockMapping`` of a ``pallas_call`` says: array, block, memory space, what
moves; and which blocks a grid visits, in which order: the facts behind legality and HBM traffic."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from autotune.compiling.child.trace.scalars import open_jaxpr
from autotune.domain.problem import bits, memory_bits, round_up, sublane_tile, values_per_word
from autotune.domain.trace import Operand

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


def operand_of(mapping: Any, block_visits: Visits, grid: Sequence[Any], is_output: bool) -> Operand:
    """What a ``BlockMapping`` says, and what is known of its visits. ``grid``: as it was built."""
    array = array_of(mapping)
    shape, block, dtype = tuple(array.shape), block_shape(mapping), str(array.dtype)
    mode = mapping.pipeline_mode
    return Operand(
        name=str(mapping.origin),
        is_output=is_output,
        shape=shape,
        block=block,
        dtype=dtype,
        space=memory_space(mapping.block_aval),
        varies=block_visits.varies,
        exclusive=block_visits.exclusive,
        fetches=block_visits.fetches,
        blocks=block_visits.blocks,
        blocks_total=prod(-(-s // b) for s, b in zip(shape, block, strict=True)),
        hbm_bytes=_operand_bytes(mapping, block_visits, dtype),
        exact=block_visits.exact,
        buffers=int(getattr(mode, "buffer_count", 0) or 0),
        reached=_reached(mapping, grid),
    )


def _reached(mapping: Any, grid: Sequence[Any]) -> tuple[int | None, ...]:
    """As ``Operand.reached``. ``grid``: as it was built; an axis that an argument decides is no
    number."""
    jaxpr = open_jaxpr(mapping.index_map_jaxpr)
    steps = dict(zip(jaxpr.invars, grid, strict=False))
    sizes = zip(
        jaxpr.outvars,
        mapping.block_shape,
        block_shape(mapping),
        array_of(mapping).shape,
        strict=True,
    )
    return tuple(
        min(extent, count * size)
        if isinstance(count := None if hasattr(var, "val") else steps.get(var), int)
        and not _is_in_elements(dimension)
        else None
        for var, dimension, size, extent in sizes
    )


def _operand_bytes(mapping: Any, aval: Any, dtype: str) -> int:
    """An operand that the kernel moves by hand is counted once, whole."""
    if memory_space(mapping.block_aval) in ("any", "hbm"):
        return int(prod(array_of(mapping).shape)) * memory_bits(dtype) // 8
    return int(aval.elements) * memory_bits(dtype) // 8


def array_of(mapping: Any) -> Any:
    """Shape and dtype of the whole array, over JAX versions."""
    aval = getattr(mapping, "array_aval", None)
    return mapping.array_shape_dtype if aval is None else aval


def block_shape(mapping: Any) -> tuple[int, ...]:
    """Elements of a block; squeezed dimensions are 1."""
    sizes = []
    for dimension in mapping.block_shape:
        size = getattr(dimension, "block_size", dimension)
        sizes.append(size if isinstance(size, int) else 1)
    return tuple(sizes)


def moved_sizes(mapping: Any, index: Sequence[Any], rank: int) -> tuple[Any, ...]:
    """Elements that each visit moves, by dimension. ``index``: of the visited block, over a grid of
    so many axes."""
    bounds = zip(starts(mapping, index), block_shape(mapping), array_of(mapping).shape, strict=True)
    return tuple(_padded([_moved(*bound, rank) for bound in bounds], mapping))


def starts(mapping: Any, index: Sequence[Any]) -> list[Any]:
    """First element of the visited block in each dimension; ``Element`` indices are elements."""
    firsts = []
    for dimension, size, i in zip(mapping.block_shape, block_shape(mapping), index, strict=True):
        firsts.append(i if i is None or _is_in_elements(dimension) else i * size)
    return firsts


def _is_in_elements(dimension: Any) -> bool:
    """Whether an index of it is that of an element, not of a block."""
    return type(dimension).__name__ in ("Element", "BoundedSlice")


def _moved(start: Any, size: int, extent: int, rank: int) -> Any:
    """Elements that a visit moves in one dimension: blocks are clipped at the array's end."""
    if start is None:
        return np.full((1,) * rank, min(size, extent))
    return np.clip(extent - start, 0, size)


def _padded(sizes: list[Any], mapping: Any) -> list[Any]:
    """HBM arrays are tiled too: what moves is whole lanes and whole sublane tiles."""
    if len(sizes) < 2:
        return sizes
    array = array_of(mapping)
    tile = sublane_tile(array.shape[-2], values_per_word(str(array.dtype)))
    return [*sizes[:-2], round_up(sizes[-2], tile), round_up(sizes[-1], 128)]


def memory_space(aval: Any) -> str:
    """Over JAX versions; all kinds of semaphores are one."""
    space = getattr(aval, "memory_space", None)
    if space is None:
        return "default"
    name = str(getattr(space, "value", space)).lower()
    return "semaphore" if "sem" in name else name


def value_bytes(aval: Any) -> int:
    """Unpadded."""
    return int(prod(aval.shape)) * bits(str(aval.dtype)) // 8
