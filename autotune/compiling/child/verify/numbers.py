"""The numbers that a kernel is run on, in the child."""

from typing import Any

import numpy as np

from autotune.declaring.kernel import Array


def values(array: Array, rng: np.random.Generator) -> Any:
    """Random normal numbers, small integers, or what the declaration gives."""
    import jax.numpy as jnp

    dtype = getattr(jnp, array.dtype)
    if array.values is not None:
        return jnp.asarray(array.values(), dtype)
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.asarray(rng.integers(-100, 100, array.shape), dtype)
    return jnp.asarray(array.std * rng.standard_normal(array.shape, dtype=np.float32), dtype)
