"""A matrix multiplication with a fused ReLU and the whole contracting dimension in one block: the
kernel whose configs ran out of VMEM when JAX turned double buffering on.

``PASSES_LIMIT`` hands a config's VMEM limit to its ``pallas_call``, ``OWN_LIMIT`` does not.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from autotune import Array, Axis, Kernel
from autotune.declaring.pallas import compiler_params


def _kernel(x, y, out):
    out[...] = jnp.maximum(jnp.dot(x[...], y[...], preferred_element_type=jnp.float32), 0.0)


def _build(problem, config, *, passes):
    m, k, n = problem["m"], problem["k"], problem["n"]
    bm, bn = config["block_m"], config["block_n"]
    more = {"compiler_params": compiler_params(config)} if passes else {}
    return pl.pallas_call(
        _kernel,
        grid=(m // bm, n // bn),
        in_specs=[
            pl.BlockSpec((bm, k), lambda i, j: (i, 0)),
            pl.BlockSpec((k, bn), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.float32),
        **more,
    )


def _declared(name, *, passes):
    return Kernel(
        name=name,
        dims=("m", "k", "n"),
        dtypes=("float32",),
        axes=(
            Axis(name="block_m", choices=lambda _: [128, 256], dim="m"),
            Axis(name="block_n", choices=lambda _: [128, 256], dim="n"),
        ),
        default=lambda _: {"block_m": 128, "block_n": 128},
        inputs=lambda p: [
            Array(name="x", shape=(p["m"], p["k"]), dtype=p.dtype),
            Array(name="y", shape=(p["k"], p["n"]), dtype=p.dtype),
        ],
        build=lambda problem, config: _build(problem, config, passes=passes),
        reference=lambda _: lambda x, y: jnp.maximum(x @ y, 0.0),
    )


OWN_LIMIT = _declared("fused_own_limit", passes=False)
PASSES_LIMIT = _declared("fused_passes_limit", passes=True)
