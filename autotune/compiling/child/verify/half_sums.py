"""Sums of bfloat16 as a TPU makes them. A CPU adds all elements one after another and rounds each
time: of 4,096 equal numbers the sum is 4 % off (tpu-inference's attention adds its weights so).

libtpu 0.0.42 to 0.0.50 adds in float32 on chips before v6e. On v6e and v7x it adds whole registers
one after another in bfloat16, then the elements of the one that is left: across lanes in bfloat16
too, across sublanes in float32 (final listings of a sum over either axis). What is done here is the
least exact of these, on any chip.
"""

from functools import cache, partial
from typing import Any

_LANES = 128  # of a register, along the last axis
_SUBLANES = 16  # rows of a register of bfloat16, along any other


@cache
def add_rule() -> None:
    """For this process, on its CPU alone."""
    from jax import lax
    from jax._src.interpreters import mlir

    default = mlir._lowerings.get(lax.reduce_sum_p)
    if default is None:
        return
    rule = getattr(default, "rule", default)

    def lowered(context: Any, x: Any, **params: Any) -> Any:
        (given,) = context.avals_in
        if given.dtype != "bfloat16" or not given.size:
            return rule(context, x, **params)
        total = partial(_total, axes=params["axes"])
        return mlir.lower_fun(total, multiple_results=False)(context, x)

    mlir.register_lowering(lax.reduce_sum_p, lowered, platform="cpu")


def _total(x: Any, *, axes: tuple[int, ...]) -> Any:
    for axis in sorted(axes, reverse=True):
        x = _along(x, axis, _LANES if axis == x.ndim - 1 else _SUBLANES)
    return x


def _along(x: Any, axis: int, register: int) -> Any:
    import jax.numpy as jnp
    from jax import lax

    def add(total: Any, other: Any) -> Any:
        return lax.reduce_precision(total + other, exponent_bits=8, mantissa_bits=7)

    x = jnp.moveaxis(x, axis, 0).astype(jnp.float32)
    padding = [(0, -len(x) % register), *[(0, 0)] * (x.ndim - 1)]
    registers = jnp.pad(x, padding).reshape(-1, register, *x.shape[1:])
    total, _ = lax.scan(lambda total, other: (add(total, other), None), registers[0], registers[1:])
    while len(total) > 1:
        total = add(*jnp.split(total, 2))
    return total[0].astype(jnp.bfloat16)
