"""A product of arguments that XLA scales and transposes first; it turns the result, too."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from autotune import Array, Kernel, block


def _body(x_ref, y_ref, out_ref):
    @pl.when(pl.program_id(2) == 0)
    def _():
        out_ref[...] = jnp.zeros_like(out_ref)

    out_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)


def _build(problem, config):
    m, k, n = (problem[dim] for dim in ("m", "k", "n"))
    block_m, block_k, block_n = (config[axis] for axis in ("block_m", "block_k", "block_n"))
    call = pl.pallas_call(
        _body,
        grid=(m // block_m, n // block_n, k // block_k),
        in_specs=[
            pl.BlockSpec((block_m, block_k), lambda i, j, step: (i, step)),
            pl.BlockSpec((block_k, block_n), lambda i, j, step: (step, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j, step: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.float32),
    )
    return lambda x, y: call(x * 2, y.T).astype(x.dtype).T


KERNEL = Kernel(
    name="surrounded",
    dims=("m", "k", "n"),
    dtypes=("bfloat16",),
    axes=(block("block_m", "m"), block("block_k", "k"), block("block_n", "n")),
    default=lambda _: {"block_m": 256, "block_k": 256, "block_n": 256},
    inputs=lambda p: [
        Array(name="x", shape=(p["m"], p["k"]), dtype=p.dtype),
        Array(name="y", shape=(p["n"], p["k"]), dtype=p.dtype),
    ],
    build=_build,
    reference=lambda _: lambda x, y: ((x * 2) @ y.T).T,
)
