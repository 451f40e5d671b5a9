"""The numbers that a kernel is run on, in the child."""

from collections.abc import Callable, Iterable, Sequence, Set
from math import prod
from typing import Any

import numpy as np

from autotune.declaring.kernel import Array
from autotune.domain.evidence import IntegerRange

Change = Callable[[Any], Any]
"""Of random normal numbers."""

_ENDS = {"reduce_max": -1, "argmax": -1, "cummax": -1, "top_k": -1}
_ENDS |= {"reduce_min": 1, "argmin": 1, "cummin": 1}
_SCALES = {"abs", "div", "exp"}  # with a maximum: of a softmax, or of what is rounded to few bits
_ZERO_ROWS = 0.6  # half of them begin with less


def values(array: Array, rng: np.random.Generator, change: Change = np.positive) -> Any:
    """Random normal numbers, changed so, whether they are above zero, small integers, or what the
    declaration gives."""
    import jax.numpy as jnp

    dtype = getattr(jnp, array.dtype)
    if array.values is not None:
        return jnp.asarray(array.values(), dtype)
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.asarray(rng.integers(-100, 100, array.shape), dtype)
    normal = rng.standard_normal(array.shape, dtype=np.float32)
    numbers = array.std * change(normal)
    return jnp.asarray(numbers > 0.0 if dtype == jnp.bool_ else numbers, dtype)


def special(primitives: Set[str]) -> Change:
    """What random numbers never are, for a function of these: many equal ones, and all below zero
    for a maximum, which may have begun with that, above for a minimum. Else zeros: blocks and rows,
    which a body may leave out or divide by, as by the largest of a row."""
    signs = [sign for name, sign in _ENDS.items() if name in primitives]
    if signs and not primitives & _SCALES:
        return lambda normal: signs[0] * _halves(normal)
    return _with_zeros


def _halves(normal: Any) -> Any:
    """One half, 1, 3/2 …"""
    return np.ceil(2.0 * np.abs(normal)) / 2.0


def _with_zeros(normal: Any) -> Any:
    """The second half of the first and of the last dimension is zero, too. No zero is negative:
    some orders have that below zero."""
    changed = np.copysign(_halves(normal), normal)
    if prod(normal.shape[:-1]) > 1:
        changed = np.where(np.abs(normal[..., :1]) > _ZERO_ROWS, changed, 0.0)
    for axis in (0, -1) if normal.ndim else ():
        np.moveaxis(changed, axis, 0)[-(-normal.shape[axis] // 2) :] = 0.0
    return changed


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
