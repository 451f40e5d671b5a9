"""The numbers that a kernel is run on, in the child."""

from typing import Any

import numpy as np

from autotune.declaring.kernel import Array


def values(array: Array, rng: np.random.Generator, *, signs: bool = False) -> Any:
    """Random normal numbers, small integers, or what the declaration gives. ``signs``: one or minus
    one, which every way to scale a block to a few bits keeps as they are."""
    import jax.numpy as jnp

    dtype = getattr(jnp, array.dtype)
    if array.values is not None:
        return jnp.asarray(array.values(), dtype)
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.asarray(rng.integers(-100, 100, array.shape), dtype)
    normal = rng.standard_normal(array.shape, dtype=np.float32)
    return jnp.asarray(array.std * (np.sign(normal) if signs else normal), dtype)
