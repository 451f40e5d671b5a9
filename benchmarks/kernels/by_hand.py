# mypy: allow-untyped-defs, allow-untyped-calls
"""Kernels as they are written, and with one change by hand, for ``benchmarks.by_hand``."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

_LOW = -1e30


def _matmul(body, x, y, *scratch, block=512):
    sizes = x.shape[0], y.shape[1], x.shape[1]
    return pl.pallas_call(
        body,
        grid=tuple(size // block for size in sizes),
        in_specs=[
            pl.BlockSpec((block, block), lambda i, _, k: (i, k)),
            pl.BlockSpec((block, block), lambda _, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((block, block), lambda i, j, _: (i, j)),
        out_shape=jax.ShapeDtypeStruct(sizes[:2], x.dtype),
        scratch_shapes=scratch,
    )(x, y)


def _sum_into(into, x, y):
    @pl.when(pl.program_id(2) == 0)
    def _():
        into[...] = jnp.zeros_like(into)

    product = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)
    into[...] += product.astype(into.dtype)


def sums_in_output(x, y):
    def body(x, y, out):
        _sum_into(out, x, y)

    return _matmul(body, x, y)


def sums_in_scratch(x, y):
    def body(x, y, out, total):
        _sum_into(total, x, y)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            out[...] = total[...].astype(out.dtype)

    return _matmul(body, x, y, pltpu.VMEM((512, 512), jnp.float32))


def _attention(body, q, k, v, *scratch, **mode):
    whole = pl.BlockSpec((1, *k.shape[1:]), lambda h, _: (h, 0, 0), **mode)
    part = pl.BlockSpec((1, 256, q.shape[2]), lambda h, i: (h, i, 0))
    return pl.pallas_call(
        body,
        grid=(q.shape[0], q.shape[1] // 256),
        in_specs=[part, whole, whole],
        out_specs=part,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        scratch_shapes=scratch,
    )(q, k, v)


def _over_lanes(weights):
    return jnp.sum(weights, axis=-1, keepdims=True)


def _softmax_product(q, keys, values, out, total=_over_lanes):
    scores = jnp.dot(q[0].astype(jnp.float32), keys) / q.shape[-1] ** 0.5
    weights = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    out[0] = (jnp.dot(weights, values) / total(weights)).astype(out.dtype)


def _whole(q, k, v, out, **more):
    _softmax_product(q, k[0].astype(jnp.float32).T, v[0].astype(jnp.float32), out, **more)


def two_buffers(q, k, v):
    return _attention(_whole, q, k, v)


def one_buffer(q, k, v):
    """For keys and values, which change with the head only: half the VMEM."""
    return _attention(_whole, q, k, v, pipeline_mode=pl.Buffered(1))


def sums_over_lanes(q, k, v):
    return _attention(_whole, q, k, v)


def sums_by_product(q, k, v):
    """The matrix unit sums each row into all lanes of the result."""

    def total(weights):
        return jnp.dot(weights, jnp.ones((weights.shape[1], 128), jnp.float32))

    return _attention(partial(_whole, total=total), q, k, v)


def casts_each_step(q, k, v):
    return _attention(_whole, q, k, v)


def casts_once(q, k, v):
    """And transposes once: keys and values stay over the steps of a head."""

    def body(q, k, v, out, keys, values):
        @pl.when(pl.program_id(1) == 0)
        def _():
            keys[...] = k[0].astype(jnp.float32).T
            values[...] = v[0].astype(jnp.float32)

        _softmax_product(q, keys[...], values[...], out)

    (length, dim), dtype = k.shape[1:], jnp.float32
    return _attention(
        body, q, k, v, pltpu.VMEM((dim, length), dtype), pltpu.VMEM(v.shape[1:], dtype)
    )


def _flash(mode, q, k, v, block=512):
    def body(q, k, v, out, high, total, acc):
        first_query, first_key = pl.program_id(1) * block, pl.program_id(2) * block

        @pl.when(pl.program_id(2) == 0)
        def _():
            high[...] = jnp.full_like(high, _LOW)
            total[...] = jnp.zeros_like(total)
            acc[...] = jnp.zeros_like(acc)

        def masked(scores):
            row, key = (lax.broadcasted_iota(jnp.int32, scores.shape, axis) for axis in (0, 1))
            return jnp.where(row + first_query >= key + first_key, scores, _LOW)

        inside = first_key + block - 1 <= first_query

        def attend(mask):
            scores = jnp.dot(q[0], k[0].T, preferred_element_type=jnp.float32) * 0.088
            scores = mask(scores)
            new = jnp.maximum(high[...], jnp.max(scores, axis=1, keepdims=True))
            weights = jnp.exp(scores - jnp.tile(new, (1, block // 128)))
            shrink = jnp.exp(high[...] - new)
            high[...] = new
            total[...] = shrink * total[...] + jnp.sum(weights, axis=1, keepdims=True)
            values = jnp.dot(weights.astype(v.dtype), v[0], preferred_element_type=jnp.float32)
            acc[...] = shrink * acc[...] + values

        seen = first_key <= first_query + block - 1
        if mode == "two bodies":
            pl.when(inside)(lambda: attend(lambda scores: scores))
            pl.when(seen & ~inside)(lambda: attend(masked))
        elif mode == "cond":
            pl.when(seen)(lambda: attend(lambda s: lax.cond(inside, lambda s: s, masked, s)))
        else:
            pl.when(seen)(lambda: attend(masked))

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            out[0] = (acc[...] / total[...]).astype(out.dtype)

    part = pl.BlockSpec((1, block, 128), lambda h, i, _: (h, i, 0))
    keys = pl.BlockSpec((1, block, 128), lambda h, _, j: (h, j, 0))
    return pl.pallas_call(
        body,
        grid=(q.shape[0], q.shape[1] // block, k.shape[1] // block),
        in_specs=[part, keys, keys],
        out_specs=part,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        scratch_shapes=[pltpu.VMEM((block, 128), jnp.float32)] * 3,
    )(q, k, v)


masks_all = partial(_flash, "mask")
masks_in_cond = partial(_flash, "cond")
masks_diagonal = partial(_flash, "two bodies")


def _add(x, y, **more):
    def body(x, y, out):
        out[...] = x[...] + y[...]

    rows = pl.BlockSpec((256, x.shape[1]), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        body, grid=(len(x) // 256,), in_specs=[rows] * 2, out_specs=rows, out_shape=shape, **more
    )(x, y)


def adds(x, y):
    return _add(x, y)


def adds_in_place(x, y):
    """``x`` is not given up by its caller: XLA copies it first."""
    return _add(x, y, input_output_aliases={0: 0})


def adds_to_what_dies(x, y):
    return _add(x * 2, y)


def adds_in_what_dies(x, y):
    """The doubled ``x`` is read by nothing else: there is no copy to save."""
    return _add(x * 2, y, input_output_aliases={0: 0})
