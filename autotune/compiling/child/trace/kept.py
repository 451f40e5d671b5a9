"""Large values that a kernel body needs again after reducing them, from its jaxpr."""

from collections.abc import Iterator
from math import prod
from typing import Any

from autotune.compiling.child.trace.scalars import open_jaxpr
from autotune.domain.problem import bits

# Columns of a product that all matrix units of a chip hold at a time (4 x 128 or 2 x 256). Narrower
# rows come out whole, and the compiler can finish one before it starts the next.
_MXU_COLUMNS = 512

_Tags = set[int]


def kept_bytes(jaxpr: Any) -> int:
    """Bytes of the largest matrix product that is used again together with its own reduction.

    Softmax is the example: all scores are needed for their maximum, and once more after it. Wide
    rows come out of the matrix unit piece by piece, all first pieces before any second one, so the
    compiler keeps them in VMEM, though they are no buffer of the kernel. Looks at the equations of
    ``jaxpr`` itself, not into what they call.
    """
    return max(_kept(open_jaxpr(jaxpr)), default=0)


def _kept(jaxpr: Any) -> Iterator[int]:
    """Follows each product (by the number of its equation) and what its reductions lead to."""
    same: dict[Any, _Tags] = {}  # variable → products that it is, element by element
    reduced: dict[Any, _Tags] = {}  # variable → products whose reduction it depends on
    for number, eqn in enumerate(jaxpr.eqns):
        given = [v for v in eqn.invars if not hasattr(v, "val")]
        before = set().union(*(same.get(v, ()) for v in given))
        after = set().union(*(reduced.get(v, ()) for v in given))
        if not eqn.primitive.name.startswith("reduce_"):
            yield from (_bytes(jaxpr.eqns[product]) for product in before & after)
        for var in eqn.outvars:
            shape = getattr(var.aval, "shape", None)
            same[var] = {p for p in before if shape == jaxpr.eqns[p].outvars[0].aval.shape}
            reduced[var] = after | (before if eqn.primitive.name.startswith("reduce_") else set())
        if eqn.primitive.name == "dot_general":
            same[eqn.outvars[0]] = {number}


def _bytes(eqn: Any) -> int:
    aval = eqn.outvars[0].aval
    if aval.shape[-1] <= _MXU_COLUMNS:
        return 0
    return int(prod(aval.shape)) * bits(str(aval.dtype)) // 8
