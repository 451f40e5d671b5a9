"""Grids that a kernel reads from its arguments, made static for interpret mode.

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
        return jax.tree_util.tree_unflatten(out, _evaluated(closed, arguments, known))

    return static


def _has_dynamic_grid(jaxpr: Any) -> bool:
    """Of its own, or of a jaxpr that it only calls."""
    for eqn in open_jaxpr(jaxpr).eqns:
        mapping, inner = eqn.params.get("grid_mapping"), called_jaxpr(eqn)
        if getattr(mapping, "num_dynamic_grid_bounds", 0) or (inner and _has_dynamic_grid(inner)):
            return True
    return False


def _evaluated(jaxpr: Any, given: Sequence[Any], known: Sequence[Any]) -> list[Any]:
    """The outputs of a jaxpr, called jaxprs entered; ``known``: integers among the arguments."""
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
        values.update(zip(eqn.outvars, _outputs(eqn, inputs, seen), strict=True))
        facts.update(zip(eqn.outvars, known_values(eqn, seen), strict=True))
    return [read(v) for v in plain.outvars]


def _outputs(eqn: Any, inputs: list[Any], seen: list[Any]) -> list[Any]:
    inner = called_jaxpr(eqn)
    if inner is not None and _has_dynamic_grid(inner):
        return _evaluated(inner, inputs, seen)
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
