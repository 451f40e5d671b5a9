"""A kernel with a grid of one axis under ``vmap``, which puts another in front of it."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from autotune.declaring.kernel import Array, Axis, Kernel
from autotune.declaring.pallas import compiler_params

WIDTH = 256


def _build(problem, config):
    def body(x, out):
        out[...] = x[...] * 2.0

    spec = pl.BlockSpec((config["block"], WIDTH), lambda i: (i, 0))
    return jax.vmap(
        pl.pallas_call(
            body,
            grid=(problem["rows"] // config["block"],),
            in_specs=[spec],
            out_specs=spec,
            out_shape=jax.ShapeDtypeStruct((problem["rows"], WIDTH), jnp.float32),
            compiler_params=compiler_params(config),
        )
    )


KERNEL = Kernel(
    name="vmapped",
    dims=("batch", "rows"),
    dtypes=("float32",),
    axes=(Axis(name="block", choices=lambda _: (64, 256), dim="rows"),),
    default=lambda _: {"block": 64},
    inputs=lambda problem: [
        Array(name="x", shape=(problem["batch"], problem["rows"], WIDTH), dtype="float32")
    ],
    build=_build,
    reference=lambda _: lambda x: x * 2.0,
)
