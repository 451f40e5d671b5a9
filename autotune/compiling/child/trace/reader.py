"""From a kernel's function to ``Trace``: needs JAX, compiles nothing."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from math import prod
from typing import Any

import numpy as np

from autotune.compiling.child.trace.blocks import value_bytes
from autotune.compiling.child.trace.calls import pallas_calls, walked
from autotune.compiling.child.trace.pallas_call import Call, name_of
from autotune.declaring.kernel import Array
from autotune.domain.problem import bits
from autotune.domain.trace import Trace

_OTHER_KERNELS = ("core_map", "mpmd_map")


class NotTunableError(ValueError):
    """The function cannot be tuned as it is; the message is a sentence for the user."""


class NoPallasCallError(NotTunableError):
    """The function holds no ``pallas_call``."""


def calls(closed: Any, arrays: Sequence[Array]) -> list[Call]:
    """Each ``pallas_call`` in the jaxpr of a function of ``arrays``, those in branches that are not
    taken included. Raises ``NotTunableError``."""
    known = [_known(array) for array in arrays]
    calls = list(pallas_calls(closed, known))
    if all(call.runs == 0 for call in calls):
        raise NoPallasCallError(_without(closed))
    for call in calls:
        _check_left_in(call.eqn)
    alone = len(calls) == 1 and all(eqn.primitive.name != "shard_map" for eqn in walked(closed))
    whole = _io_bytes(arrays, [v.aval for v in closed.jaxpr.outvars]) if alone else None
    names = [array.name for array in arrays]
    return [Call(call, whole, names) for call in calls]


def traces(calls: Sequence[Call], orders: Sequence[Sequence[int]] | None = None) -> list[Trace]:
    """Those of the calls that run, one trace for each grid order.

    ``orders``: permutations of the grid axes as built; the identity alone by default, and where
    there are several calls, whose grids differ.
    """
    run = [call for call in calls if call.runs != 0]
    each = zip(*(call.traces(orders if len(run) == 1 else None) for call in run), strict=True)
    return [replace(first, more=tuple(more)) for first, *more in each]


def _check_left_in(eqn: Any) -> None:
    """Raises ``NotTunableError`` for what an author needs while writing a kernel."""
    for switch in ("interpret", "debug"):
        if eqn.params.get(switch):
            raise NotTunableError(
                f"pallas_call of {name_of(eqn)} has {switch}=True: remove it, or nothing is "
                "compiled as it will run on a TPU"
            )


def _without(closed: Any) -> str:
    """A sentence about a function that makes no call."""
    names = (eqn.primitive.name for eqn in walked(closed))
    other = next((name for name in names if name in _OTHER_KERNELS), None)
    if other is None:
        return "the kernel's function holds no pallas_call: there is nothing to tune in it"
    return (
        f"the kernel's function holds no pallas_call: it is written for a mesh of cores ({other}, "
        "from pl.kernel or pl.core_map), which cannot be traced yet"
    )


def _known(array: Array) -> Any:
    """The integers that are given: what a kernel does does not depend on other numbers."""
    values = None if array.values is None else np.asarray(array.values())
    return values if values is not None and np.issubdtype(values.dtype, np.integer) else None


def abstract(arrays: Sequence[Array]) -> list[Any]:
    """Shapes and dtypes, for tracing."""
    import jax

    return [jax.ShapeDtypeStruct(a.shape, np.dtype(_dtype(a.dtype))) for a in arrays]


def all_orders(rank: int) -> list[tuple[int, ...]]:
    """Every permutation of ``rank`` grid axes, the identity first."""
    return list(permutations(range(rank)))


def _io_bytes(arrays: Sequence[Array], outputs: Sequence[Any]) -> int:
    given = sum(prod(a.shape) * bits(a.dtype) // 8 for a in arrays)
    return given + sum(value_bytes(o) for o in outputs)


def _dtype(name: str) -> Any:
    import jax.numpy as jnp

    return getattr(jnp, name) if hasattr(jnp, name) else name
