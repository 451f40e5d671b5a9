"""What can be changed in a kernel, by kind: in an equation of its body, or in how it is called."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

from autotune.compiling.child.changes.grid_order import grid_orders
from autotune.compiling.child.changes.rewriting import Made, Rule, spliced
from autotune.domain.change import ChangeKind
from autotune.domain.problem import ARBITRARY, PARALLEL

_Options = Mapping[str, Callable[[], Any]]

_UNROLLED = (2, 4, 8)
_LIMITS = tuple(mebibytes << 20 for mebibytes in (32, 64, 96))


def _wide_sum(eqn: Any, _: Made) -> _Options:
    import jax.numpy as jnp

    if eqn.primitive.name != "dot_general" or str(eqn.outvars[0].aval.dtype) != "bfloat16":
        return {}

    def product(x: Any, y: Any) -> Any:
        wide = _dot(eqn, x, y, preferred_element_type=jnp.dtype("float32"))
        return wide.astype(jnp.bfloat16)

    return {"": lambda: spliced(eqn, eqn.invars, product)}


def _scaled_operand(eqn: Any, made: Made) -> _Options:
    """``(x @ y) * c`` where x has fewer elements than the product."""
    if eqn.primitive.name not in ("mul", "div") or not _is_float(eqn.outvars[0]):
        return {}
    x, scale = eqn.invars if hasattr(eqn.invars[1], "val") else eqn.invars[::-1]
    dot = made(x)
    if not hasattr(scale, "val") or dot is None or dot.primitive.name != "dot_general":
        return {}
    if eqn.primitive.name == "div" and scale is not eqn.invars[1]:
        return {}
    if prod(dot.invars[0].aval.shape) >= prod(dot.outvars[0].aval.shape):
        return {}
    factor = float(scale.val) if eqn.primitive.name == "mul" else 1.0 / float(scale.val)

    def product(x: Any, y: Any) -> Any:
        return _dot(dot, (x * factor).astype(x.dtype), y)

    return {"": lambda: spliced(eqn, dot.invars, product)}


def _unrolled(eqn: Any, _: Made) -> _Options:
    """A loop of known length; by as many turns as it has, if these are fewer: a small problem has a
    short one."""
    if eqn.primitive.name != "scan" or eqn.params["unroll"] != 1 or eqn.params["length"] == 1:
        return {}
    turns = eqn.params["length"]
    return {str(count): partial(_with_turns, eqn, min(count, turns)) for count in _UNROLLED}


def _with_turns(eqn: Any, count: int) -> list[Any]:
    return [eqn.replace(params={**eqn.params, "unroll": count})]


def _no_bounds_checks(eqn: Any, _: Made) -> _Options:
    if getattr(_parameters(eqn), "disable_bounds_checks", True):
        return {}
    return {"": partial(_with_parameters, eqn, disable_bounds_checks=True)}


def _vmem_limit(eqn: Any, _: Made) -> _Options:
    if getattr(_parameters(eqn), "vmem_limit_bytes", True):
        return {}
    return {str(n): partial(_with_parameters, eqn, vmem_limit_bytes=n) for n in _LIMITS}


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


def _dot(eqn: Any, x: Any, y: Any, **others: Any) -> Any:
    from jax import lax

    names = ("dimension_numbers", "precision", "preferred_element_type")
    return lax.dot_general(x, y, **{**{name: eqn.params[name] for name in names}, **others})


def _is_float(var: Any) -> bool:
    return "float" in str(var.aval.dtype)


BODY_RULES: Mapping[ChangeKind, Rule] = {
    ChangeKind.WIDE_SUM: _wide_sum,
    ChangeKind.SCALED_OPERAND: _scaled_operand,
    ChangeKind.UNROLLED: _unrolled,
}

CALL_RULES: Mapping[ChangeKind, Rule] = {
    ChangeKind.VMEM_LIMIT: _vmem_limit,
    ChangeKind.SEMANTICS: _semantics,
    ChangeKind.GRID_ORDER: grid_orders,
    ChangeKind.NO_BOUNDS_CHECKS: _no_bounds_checks,
}
