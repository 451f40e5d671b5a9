"""What can be changed in a kernel, by kind: in an equation of its body, or in how it is called."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from autotune.compiling.child.changes.buffers import more_buffers
from autotune.compiling.child.changes.grid_order import grid_orders
from autotune.compiling.child.changes.rewriting import Made, Rule, spliced
from autotune.domain.change import ChangeKind
from autotune.domain.problem import ARBITRARY, PARALLEL

_Options = Mapping[str, Callable[[], Any]]

_UNROLLED = (2, 4, 8)
_SCALES = {"div": "/", "mul": "*"}
_LIMITS = tuple(mebibytes << 20 for mebibytes in (32, 64, 96))


def _wide_sum(eqn: Any, _: Made) -> _Options:
    import jax.numpy as jnp
    from jax import lax

    if eqn.primitive.name != "dot_general" or str(eqn.outvars[0].aval.dtype) != "bfloat16":
        return {}
    same = {name: eqn.params[name] for name in ("dimension_numbers", "precision")}

    def product(x: Any, y: Any) -> Any:
        wide = lax.dot_general(x, y, **same, preferred_element_type=jnp.dtype("float32"))
        return wide.astype(jnp.bfloat16)

    return {"": partial(spliced, eqn, eqn.invars, product)}


def _late_scale(eqn: Any, made: Made) -> _Options:
    """A factor of the rows of the left operand, applied to the result instead."""
    if eqn.primitive.name != "dot_general" or eqn.params["dimension_numbers"][0][0] != (1,):
        return {}
    scaled = _unconverted(eqn.invars[0], made)
    kind = "" if scaled is None else scaled.primitive.name
    if scaled is None or kind not in _SCALES:
        return {}
    (rows, scale), wide = scaled.invars, eqn.outvars[0].aval
    is_column = rows.aval.shape[1:] == eqn.invars[0].aval.shape[1:] and scale.aval.shape[1:] == (1,)
    if not is_column or len(wide.shape) != 2:
        return {}
    dtype = eqn.invars[0].aval.dtype

    def product(x: Any, by: Any, y: Any) -> Any:
        made = eqn.primitive.bind(x.astype(dtype), y, **eqn.params)
        return (made / by if kind == "div" else made * by).astype(wide.dtype)

    return {_SCALES[kind]: partial(spliced, eqn, (rows, scale, eqn.invars[1]), product)}


def _early_scale(eqn: Any, made: Made) -> _Options:
    """A factor of the whole product, applied to its left operand instead, which is smaller."""
    if eqn.primitive.name not in _SCALES or eqn.invars[1].aval.shape:
        return {}
    product = _unconverted(eqn.invars[0], made)
    if product is None or product.primitive.name != "dot_general":
        return {}
    import jax.numpy as jnp

    wide, left = eqn.outvars[0].aval, product.invars[0].aval
    if left.size >= wide.size or not jnp.issubdtype(left.dtype, jnp.floating):
        return {}

    def scaled(x: Any, by: Any, y: Any) -> Any:
        by = by.astype(x.dtype)
        x = x / by if eqn.primitive.name == "div" else x * by
        return product.primitive.bind(x, y, **product.params).astype(wide.dtype)

    inputs = (product.invars[0], eqn.invars[1], product.invars[1])
    return {_SCALES[eqn.primitive.name]: partial(spliced, eqn, inputs, scaled)}


def _unconverted(var: Any, made: Made) -> Any:
    """The equation that makes a variable, before it is converted."""
    eqn: Any = None if hasattr(var, "val") else made.get(var)
    is_conversion = eqn is not None and eqn.primitive.name == "convert_element_type"
    return _unconverted(eqn.invars[0], made) if is_conversion else eqn


def _unrolled(eqn: Any, _: Made) -> _Options:
    """A loop of known length; by as many turns as it has, if these are fewer: a small problem has a
    short one."""
    if eqn.primitive.name != "scan" or eqn.params["unroll"] != 1 or eqn.params["length"] == 1:
        return {}
    turns = eqn.params["length"]
    return {str(count): partial(_with_turns, eqn, min(count, turns)) for count in _UNROLLED}


def _with_turns(eqn: Any, count: int) -> list[Any]:
    return [eqn.replace(params={**eqn.params, "unroll": count})]


def _not_given(name: str, values: Mapping[str, Any], eqn: Any, _: Made) -> _Options:
    """What a parameter can be that the call leaves out."""
    if getattr(_parameters(eqn), name, True):
        return {}
    return {text: partial(_with_parameters, eqn, **{name: n}) for text, n in values.items()}


def _semantics(eqn: Any, _: Made) -> _Options:
    """The first axes parallel; which of these are right is for the rules to say."""
    mapping = eqn.params["grid_mapping"]
    if _parameters(eqn) is None:
        return {}
    rank = len(mapping.grid) - len(mapping.vmapped_dims)
    options = dict[str, Callable[[], Any]]()
    for count in range(1, rank + 1):
        kinds = (PARALLEL,) * count + (ARBITRARY,) * (rank - count)
        letters = "".join(kind[0].upper() for kind in kinds)
        options[letters] = partial(_with_parameters, eqn, dimension_semantics=kinds)
    return options


def _parameters(eqn: Any) -> Any:
    """Those of Mosaic; JAX before 0.7 has them as a mapping, which is left alone."""
    from jax.experimental.pallas import tpu as pltpu

    given = eqn.params["compiler_params"]
    make = getattr(pltpu, "CompilerParams", None)
    if given is None or given == {}:
        return make() if make else None
    return None if hasattr(given, "get") else given


def _with_parameters(eqn: Any, **values: Any) -> list[Any]:
    params = dataclasses.replace(_parameters(eqn), **values)
    return [eqn.replace(params={**eqn.params, "compiler_params": params})]


BODY_RULES: Mapping[ChangeKind, Rule] = {
    ChangeKind.WIDE_SUM: _wide_sum,
    ChangeKind.UNROLLED: _unrolled,
    ChangeKind.LATE_SCALE: _late_scale,
    ChangeKind.EARLY_SCALE: _early_scale,
}

CALL_RULES: Mapping[ChangeKind, Rule] = {
    ChangeKind.VMEM_LIMIT: partial(_not_given, "vmem_limit_bytes", {str(n): n for n in _LIMITS}),
    ChangeKind.SEMANTICS: _semantics,
    ChangeKind.GRID_ORDER: grid_orders,
    ChangeKind.NO_BOUNDS_CHECKS: partial(_not_given, "disable_bounds_checks", {"": True}),
    ChangeKind.BUFFERS: more_buffers,
}
