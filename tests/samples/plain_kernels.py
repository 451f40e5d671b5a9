"""Kernels that are plain JAX functions: what a machine without an accelerator can run and time.

``how`` chooses what a candidate does to its process when it runs.
"""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np

from autotune.declaring.kernel import Array, Axis, Kernel


def _inputs(problem):
    return [Array(name="x", shape=(problem["n"], problem["n"]), dtype="float32")]


def _build(problem, config):
    how, repeats = config["how"], config["repeats"]

    def run(x):
        if how != "right":
            x = jax.pure_callback(_mischief(how), jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        return jax.lax.fori_loop(0, repeats, lambda _, y: jnp.tanh(y @ x), x)

    return run


def _mischief(how):
    def callback(x):
        if how == "dies":
            os.abort()
        if how == "hangs":
            time.sleep(1000)
        if how == "raises":
            raise RuntimeError("a candidate that raises when it runs")
        return np.asarray(x)

    return callback


KERNEL = Kernel(
    name="plain",
    dims=("n",),
    dtypes=("float32",),
    axes=(
        Axis(name="repeats", choices=lambda _: [1, 300]),
        Axis(name="how", choices=lambda _: ["right", "dies", "hangs", "raises"]),
    ),
    default=lambda _: {"repeats": 300, "how": "right"},
    inputs=_inputs,
    build=_build,
    reference=lambda _: lambda x: x @ x,
)
