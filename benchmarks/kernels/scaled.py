"""A function under ``autotune.tunable``, as users have them."""

from typing import Any

import jax
from jax.experimental import pallas as pl

import autotune


def _body(x_ref: Any, w_ref: Any, out_ref: Any) -> None:
    out_ref[...] = (x_ref[...] * w_ref[...]).astype(out_ref.dtype)


@autotune.tunable(
    block_rows=autotune.block("x.-2", minimum=8), block_columns=autotune.block("x.-1")
)
def scaled(x: Any, w: Any, *, block_rows: int = 8, block_columns: int = 128) -> Any:
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
