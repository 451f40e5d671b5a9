"""A kernel whose lines are told apart by what they ask of the core: the comment behind a line says
which opcodes are its own, and no other line has them."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

SIZE = 128


def _softened(scores):
    return jnp.exp(scores)  # exponential


def _product(x, y):
    return jnp.dot(x, y, preferred_element_type=jnp.float32)


def _body(x_ref, y_ref, out_ref, turned_ref):
    x = x_ref[...]
    single = _product(x, y_ref[0])  # product
    double = _product(x, y_ref[1]) + _product(x, y_ref[2])  # two products
    highest = jnp.max(single, axis=1, keepdims=True)  # row maximum
    soft = _softened(single - highest)
    out_ref[...] = soft + double
    turned_ref[...] = soft.T  # transpose


def function(x, y):
    """x: [4 * SIZE, SIZE], y: [3, SIZE, SIZE], bfloat16."""
    row = pl.BlockSpec((SIZE, SIZE), lambda i: (i, 0))
    return pl.pallas_call(
        _body,
        grid=(4,),
        in_specs=[row, pl.BlockSpec((3, SIZE, SIZE), lambda i: (0, 0, 0))],
        out_specs=[row, pl.BlockSpec((SIZE, SIZE), lambda i: (0, i))],
        out_shape=[
            jax.ShapeDtypeStruct((4 * SIZE, SIZE), jnp.float32),
            jax.ShapeDtypeStruct((SIZE, 4 * SIZE), jnp.float32),
        ],
    )(x, y)


def arguments(sharding):
    shapes = (4 * SIZE, SIZE), (3, SIZE, SIZE)
    return [jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding) for shape in shapes]
