"""Functions with more than one ``pallas_call``: a chain, a loop around one, and a branch. And one
with a grid of one axis under ``vmap``, which puts another in front of it."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from autotune.declaring.kernel import Array, Axis, Kernel
from autotune.declaring.pallas import compiler_params
from autotune.domain.problem import Option

TURNS = 3
WIDTH, LANES = 512, 256


def _scaled(rows, block, factor, name):
    def body(x, out):
        out[...] = x[...] * factor

    spec = pl.BlockSpec((block, WIDTH), lambda i: (i, 0))
    return pl.pallas_call(
        body,
        grid=(rows // block,),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((rows, WIDTH), jnp.float32),
        name=name,
    )


def _build(problem, config):
    """``block`` reaches the first call and the loop, ``last`` the last one."""
    rows, block, last = problem["rows"], config["block"], config["last"]

    def function(which, x):
        x = _scaled(rows, block, 2.0, "first")(x)
        branches = [_scaled(rows, 64, 3.0, "left"), _scaled(rows, 32, 4.0, "right")]
        x = jax.lax.cond(which[0] > 0, branches[1], branches[0], x)
        looped = _scaled(rows, block, 0.5, "looped")
        x, _ = jax.lax.scan(lambda x, _: (looped(x), None), x, None, length=TURNS)
        return _scaled(rows, last, 5.0, "last")(x)

    return function


def _reference(_):
    return lambda which, x: x * 10 * 0.5**TURNS * jnp.where(which[0] > 0, 4.0, 3.0)


def _inputs(problem):
    given = {"known": lambda: np.array([1], np.int32), "unknown": None}
    return [
        Array(name="which", shape=(1,), dtype="int32", values=given[str(problem.option("branch"))]),
        Array(name="x", shape=(problem["rows"], WIDTH), dtype="float32"),
    ]


KERNEL = Kernel(
    name="several_calls",
    dims=("rows",),
    dtypes=("float32",),
    options=(Option(name="branch", choices=("known", "unknown"), default="known"),),
    axes=(
        Axis(name="block", choices=lambda _: (64, 256, 12), dim="rows"),
        Axis(name="last", choices=lambda _: (64, 256, 12), dim="rows"),
    ),
    default=lambda _: {"block": 64, "last": 256},
    constraint=lambda _, config: (
        "the last block must not be smaller than the others"
        if config["last"] < config["block"]
        else None
    ),
    inputs=_inputs,
    build=_build,
    reference=_reference,
)


def _build_one(problem, config):
    def body(x, out):
        out[...] = x[...] * 2.0

    spec = pl.BlockSpec((config["block"], LANES), lambda i: (i, 0))
    return jax.vmap(
        pl.pallas_call(
            body,
            grid=(problem["rows"] // config["block"],),
            in_specs=[spec],
            out_specs=spec,
            out_shape=jax.ShapeDtypeStruct((problem["rows"], LANES), jnp.float32),
            compiler_params=compiler_params(config),
        )
    )


VMAPPED = Kernel(
    name="vmapped",
    dims=("batch", "rows"),
    dtypes=("float32",),
    axes=(Axis(name="block", choices=lambda _: (64, 256), dim="rows"),),
    default=lambda _: {"block": 64},
    inputs=lambda problem: [
        Array(name="x", shape=(problem["batch"], problem["rows"], LANES), dtype="float32")
    ],
    build=_build_one,
    reference=lambda _: lambda x: x * 2.0,
)
