"""The numbers that a kernel is run on, in the child."""

from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from autotune.declaring.kernel import Array, Kernel
from autotune.domain.evidence import IntegerRange
from autotune.domain.problem import Problem

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
        if _has_integers(array)
    )


def operands_that_name_rows(kernel: Kernel, problem: Problem) -> frozenset[str]:
    """Those whose integers are places in another operand (pages, rows of a table): less than it is
    long, and others where it is half as long. Integers that together are no more may be the lengths
    of its parts."""
    names, arrays = set(), kernel.inputs(problem)
    for dim, size in problem.dims:
        with suppress(Exception):  # there may be no such problem
            halves = kernel.inputs(problem.with_dims(**{dim: size // 2}))
            rows = [(a.shape[:1], h.shape[:1]) for a, h in zip(arrays, halves, strict=True)]
            if ((size,), (size // 2,)) not in rows:
                continue
            for array, half in zip(arrays, halves, strict=True):
                if _has_integers(array) and array.shape == half.shape:
                    contents, fewer = _contents(array), _contents(half)
                    follows = contents.max() < size and fewer.max() < size // 2
                    if follows and contents.max() != fewer.max() and contents.sum() > size:
                        names.add(array.name)
    return frozenset(names)


def lengths_given(arrays: Sequence[Array], naming: Set[str]) -> list[int]:
    """The largest integer of each operand whose integers the declaration gives and that names no
    rows."""
    return [_ends([a])[1] for a in arrays if _has_integers(a) and a.name not in naming]


def lengths_cut(arrays: Sequence[Array], name: str) -> Any:
    """The integers of the operand of that name, and where they rise from 0, what is between them;
    None where there is no such operand."""
    for array in arrays:
        if array.name == name and _has_integers(array):
            contents = _contents(array).ravel()
            between = np.diff(contents)
            rises = len(between) and contents[0] == 0 <= between.min()
            return (contents, between) if rises else (contents,)
    return None


def rows_named(arrays: Sequence[Array], naming: Set[str]) -> list[tuple[int, int]]:
    """Of each operand that names rows: how many different ones, and how many there are."""
    contents = [_contents(a) for a in arrays if a.name in naming]
    return [(np.unique(numbers).size, numbers.size) for numbers in contents]


def _contents(array: Array) -> Any:
    assert array.values is not None
    return np.asarray(array.values())


def _has_integers(array: Array) -> bool:
    is_given = array.values is not None and array.dtype.startswith("int")
    return is_given and 0 not in array.shape


def _ends(arrays: Iterable[Array]) -> tuple[int, int]:
    contents = list(map(_contents, arrays))
    return int(min(a.min() for a in contents)), int(max(a.max() for a in contents))
