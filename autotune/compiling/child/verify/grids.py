"""Functions evaluated equation by equation: grids that a kernel reads from its arguments made
static for interpret mode, and numbers of 16 bits wide.

JAX's TPU interpreter draws the order of parallel axes while it is traced: up to jax 0.12 at least
an axis whose extent is an argument then ends in a ``ConcretizationTypeError``. The extents follow
from the integers that the declaration gives.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autotune.compiling.child.trace.calls import bound, known_values
from autotune.compiling.child.trace.scalars import called_jaxpr, constants, open_jaxpr

_HALVES = ("bfloat16", "float16")


def with_static_grids(function: Callable[..., Any], given: Sequence[Any]) -> Callable[..., Any]:
    """The same function for arguments with the integers of ``given``; ``function`` itself where no
    grid is dynamic."""
    import jax

    closed, shape = jax.make_jaxpr(function, return_shape=True)(*given)
    if not _has_dynamic_grid(closed):
        return function
    out = jax.tree_util.tree_structure(shape)
    known = [
        np.asarray(array) if np.issubdtype(array.dtype, np.integer) else None for array in given
    ]

    def static(*arguments: Any) -> Any:
        return jax.tree_util.tree_unflatten(out, _evaluated(closed, arguments, known, _outputs))

    return static


def in_float32(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Its outputs with 32 bits wherever it has 16. Raises where it loops."""
    return _with_outputs(function, _wide_outputs)


def without_maximum(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Its outputs with 0 for each maximum of a dimension: a softmax as it overflows."""
    return _with_outputs(function, _zero_maxima)


def _with_outputs(
    function: Callable[..., Any], outputs: Callable[..., list[Any]]
) -> Callable[..., list[Any]]:
    import jax

    return lambda *given: _evaluated(
        jax.make_jaxpr(function)(*given), given, [None] * len(given), outputs
    )


def _zero_maxima(eqn: Any, inputs: list[Any], seen: list[Any]) -> list[Any]:
    import jax.numpy as jnp

    if (inner := called_jaxpr(eqn)) is not None:
        return _evaluated(inner, inputs, seen, _zero_maxima)
    outputs = bound(eqn.primitive, inputs, eqn.params)
    return [*map(jnp.zeros_like, outputs)] if eqn.primitive.name == "reduce_max" else outputs


def _wide_outputs(eqn: Any, inputs: list[Any], seen: list[Any]) -> list[Any]:
    if (inner := called_jaxpr(eqn)) is not None:
        return _evaluated(inner, inputs, seen, _wide_outputs)
    halves = [str(getattr(value, "dtype", "")) in _HALVES for value in inputs]
    wide = [
        v.astype("float32") if is_half else v for v, is_half in zip(inputs, halves, strict=True)
    ]
    params = {n: "float32" if str(value) in _HALVES else value for n, value in eqn.params.items()}
    return bound(eqn.primitive, wide, params)


def _has_dynamic_grid(jaxpr: Any) -> bool:
    """Of its own, or of a jaxpr that it only calls."""
    for eqn in open_jaxpr(jaxpr).eqns:
        mapping, inner = eqn.params.get("grid_mapping"), called_jaxpr(eqn)
        if getattr(mapping, "num_dynamic_grid_bounds", 0) or (inner and _has_dynamic_grid(inner)):
            return True
    return False


def _evaluated(
    jaxpr: Any, given: Sequence[Any], known: Sequence[Any], outputs: Callable[..., list[Any]]
) -> list[Any]:
    """By the ``outputs`` of each equation; ``known``: integers among the arguments."""
    plain = open_jaxpr(jaxpr)
    values = dict(zip(plain.invars, given, strict=True))
    values.update(zip(plain.constvars, getattr(jaxpr, "consts", ()), strict=False))
    facts = dict(zip(plain.invars, known, strict=True)) | dict(constants(jaxpr))

    def read(var: Any) -> Any:
        return var.val if hasattr(var, "val") else values[var]

    def fact(var: Any) -> Any:
        return np.asarray(var.val) if hasattr(var, "val") else facts.get(var)

    for eqn in plain.eqns:
        inputs, seen = [read(v) for v in eqn.invars], [fact(v) for v in eqn.invars]
        values.update(zip(eqn.outvars, outputs(eqn, inputs, seen), strict=True))
        facts.update(zip(eqn.outvars, known_values(eqn, seen), strict=True))
    return [read(v) for v in plain.outvars]


def _outputs(eqn: Any, inputs: list[Any], seen: list[Any]) -> list[Any]:
    inner = called_jaxpr(eqn)
    if inner is not None and _has_dynamic_grid(inner):
        return _evaluated(inner, inputs, seen, _outputs)
    params = eqn.params
    if eqn.primitive.name == "pallas_call":
        inputs, params = _static(params, inputs, seen)
    return bound(eqn.primitive, inputs, params)


def _static(params: Any, inputs: list[Any], seen: list[Any]) -> tuple[list[Any], Any]:
    """A call's operands and parameters with the extents that are known in their places."""
    mapping = params["grid_mapping"]
    dynamic = mapping.num_dynamic_grid_bounds
    if not dynamic or any(bound is None for bound in seen[:dynamic]):
        return inputs, params
    bounds = iter(seen[:dynamic])
    grid = tuple(size if isinstance(size, int) else int(next(bounds)) for size in mapping.grid)
    fixed = replace(mapping, grid=grid)
    return inputs[dynamic:], {**params, "grid_mapping": fixed}
