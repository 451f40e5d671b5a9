"""What a ``BlockMapping`` of a ``pallas_call`` says: array, block, memory space, what moves."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from autotune.compiling.child.trace.block_fetches import Visits
from autotune.compiling.child.trace.scalars import open_jaxpr
from autotune.domain.problem import bits, memory_bits, round_up, sublane_tile, values_per_word
from autotune.domain.trace import Operand


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
