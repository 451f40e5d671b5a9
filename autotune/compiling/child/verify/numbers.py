"""The numbers that a kernel is run on, in the child."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from autotune.declaring.kernel import Array
from autotune.domain.evidence import IntegerRange


def values(
    array: Array, rng: np.random.Generator, *, signs: bool = False, times: float = 1.0
) -> Any:
    """Random normal numbers, so many ``times`` as large, small integers, or what the declaration
    gives. ``signs``: one or minus one, which every way to scale a block to a few bits keeps as they
    are."""
    import jax.numpy as jnp

    dtype = getattr(jnp, array.dtype)
    if array.values is not None:
        return jnp.asarray(array.values(), dtype)
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.asarray(rng.integers(-100, 100, array.shape), dtype)
    normal = rng.standard_normal(array.shape, dtype=np.float32)
    return jnp.asarray(times * array.std * (np.sign(normal) if signs else normal), dtype)


def integer_ranges(
    real: Sequence[Array], small: Iterable[Sequence[Array]]
) -> tuple[IntegerRange, ...]:
    """Of each operand whose integers the declaration gives."""
    return tuple(
        IntegerRange(array.name, *_ends(smalls), *_ends([array]))
        for array, *smalls in zip(real, *small, strict=True)
        if array.values is not None and array.dtype.startswith("int") and 0 not in array.shape
    )


def _ends(arrays: Iterable[Array]) -> tuple[int, int]:
    contents = [np.asarray(array.values()) for array in arrays if array.values is not None]
    return int(min(a.min() for a in contents)), int(max(a.max() for a in contents))
