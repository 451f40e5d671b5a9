"""Functions under ``autotune.tunable``, as users have them."""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

import autotune


def _body(x_ref: Any, w_ref: Any, out_ref: Any) -> None:
    out_ref[...] = (x_ref[...] * w_ref[...]).astype(out_ref.dtype)


def plain_scaled(x: Any, w: Any, *, block_rows: int = 8, block_columns: int = 128) -> Any:
    """Each column by its own factor."""
    rows, columns = x.shape
    spec = pl.BlockSpec((block_rows, block_columns), lambda i, j: (i, j))
    return pl.pallas_call(
        _body,
        grid=(pl.cdiv(rows, block_rows), pl.cdiv(columns, block_columns)),
        in_specs=[spec, pl.BlockSpec((1, block_columns), lambda _, j: (0, j))],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x, w)


AXES: dict[str, Any] = {
    "block_rows": autotune.block("x.-2", minimum=8),
    "block_columns": autotune.block("x.-1"),
}

scaled = autotune.tunable(**AXES)(plain_scaled)
"""Agrees with its default config, and no more."""

checked = autotune.tunable(name="checked", reference=lambda x, w: x * w, **AXES)(plain_scaled)


class Weights(NamedTuple):
    scale: Any
    bias: Any = None


@dataclass(frozen=True)
class Options:
    negate: bool = False
    activation: Any = jax.nn.relu


@functools.partial(jax.jit, static_argnames=("options", "block_rows"))
@autotune.tunable(block_rows=autotune.block("rows", minimum=8), dims={"x": "rows columns"})
def with_tree(
    x: Any, weights: Weights, options: Options = Options(), *, block_rows: int = 8
) -> Any:
    """A pytree with None in it, a dataclass of static options, and ``jax.jit`` around all."""
    y = plain_scaled(x, weights.scale, block_rows=block_rows)
    return options.activation(-y if options.negate else y)


class Layer:
    """A method."""

    @staticmethod
    @autotune.tunable(block_rows=autotune.block("x.-2", minimum=8))
    def forward(x: Any, *, block_rows: int = 8) -> Any:
        return plain_scaled(x, jnp.ones((1, x.shape[1]), x.dtype), block_rows=block_rows)


half = autotune.tunable(name="half", block_rows=autotune.block("x.-2", minimum=8))(
    functools.partial(plain_scaled, block_columns=256)
)


@autotune.tunable(block_rows=autotune.block("x.0", minimum=8), reference=lambda x, y: x + y)
def added(x: Any, y: Any, *, block_rows: int = 8) -> Any:
    """Two arrays whose rows nobody says to be as many; only the reference minds."""
    spec = pl.BlockSpec((block_rows, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        lambda x_ref, y_ref, out_ref: out_ref.__setitem__(..., x_ref[...] + y_ref[...]),
        grid=(pl.cdiv(x.shape[0], block_rows),),
        in_specs=[spec, spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x, y)
