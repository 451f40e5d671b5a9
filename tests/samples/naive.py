"""Kernels as people write them first, each from its formula: nobody has tuned or optimised them."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def _rows(body, x, *others, block=256):
    """A kernel over blocks of rows of ``x``; the others are whole."""
    row = pl.BlockSpec((block, x.shape[1]), lambda i: (i, 0))
    whole = [pl.BlockSpec(each.shape, lambda i: (0, 0)) for each in others]
    return pl.pallas_call(
        body,
        grid=(x.shape[0] // block,),
        in_specs=[row, *whole],
        out_specs=row,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x, *others)


def _softmax_body(x_ref, out_ref):
    x = x_ref[...].astype(jnp.float32)
    weights = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
    out_ref[...] = (weights / jnp.sum(weights, axis=-1, keepdims=True)).astype(out_ref.dtype)


def softmax(x):
    return _rows(_softmax_body, x)


def _layer_norm_body(x_ref, scale_ref, shift_ref, out_ref):
    x = x_ref[...].astype(jnp.float32)
    centred = x - jnp.mean(x, axis=1, keepdims=True)
    variance = jnp.mean(centred**2, axis=1, keepdims=True)
    normal = centred / jnp.sqrt(variance + 1e-5)
    out_ref[...] = (normal * scale_ref[...] + shift_ref[...]).astype(out_ref.dtype)


def layer_norm(x, scale, shift):
    return _rows(_layer_norm_body, x, scale, shift)


def _rms_norm_body(x_ref, scale_ref, out_ref):
    x = x_ref[...].astype(jnp.float32)
    root = jnp.sqrt(jnp.mean(x * x, axis=1, keepdims=True) + 1e-6)
    out_ref[...] = (x / root * scale_ref[...]).astype(out_ref.dtype)


def rms_norm(x, scale):
    return _rows(_rms_norm_body, x, scale)


def _swiglu_body(x_ref, gate_ref, up_ref, out_ref):
    x = x_ref[...].astype(jnp.float32)
    gate = jnp.dot(x, gate_ref[...].astype(jnp.float32))
    up = jnp.dot(x, up_ref[...].astype(jnp.float32))
    out_ref[...] = (gate / (1 + jnp.exp(-gate)) * up).astype(out_ref.dtype)


def swiglu(x, gate, up, *, block_m=256, block_n=256):
    weight = pl.BlockSpec((x.shape[1], block_n), lambda i, j: (0, j))
    return pl.pallas_call(
        _swiglu_body,
        grid=(x.shape[0] // block_m, gate.shape[1] // block_n),
        in_specs=[pl.BlockSpec((block_m, x.shape[1]), lambda i, j: (i, 0)), weight, weight],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((x.shape[0], gate.shape[1]), x.dtype),
    )(x, gate, up)


def _attention_body(q_ref, k_ref, v_ref, out_ref):
    q, k, v = (ref[0].astype(jnp.float32) for ref in (q_ref, k_ref, v_ref))
    scores = jnp.dot(q, k.T) / q.shape[-1] ** 0.5
    weights = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
    out_ref[0] = jnp.dot(weights, v).astype(out_ref.dtype)


def attention(q, k, v, *, block=256):
    """q, k, v: [heads, sequence, head_dim]; all keys of a head are one block."""
    whole = pl.BlockSpec((1, *k.shape[1:]), lambda h, i: (h, 0, 0))
    part = pl.BlockSpec((1, block, q.shape[2]), lambda h, i: (h, i, 0))
    return pl.pallas_call(
        _attention_body,
        grid=(q.shape[0], q.shape[1] // block),
        in_specs=[part, whole, whole],
        out_specs=part,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
    )(q, k, v)


def _flash_body(q_ref, k_ref, v_ref, out_ref, *, block_k):
    q = q_ref[0].astype(jnp.float32) * q_ref.shape[-1] ** -0.5

    def step(i, carry):
        highest, total, result = carry
        part = pl.ds(i * block_k, block_k)
        scores = jnp.dot(q, k_ref[0, part, :].astype(jnp.float32).T)
        new = jnp.maximum(highest, jnp.max(scores, axis=1, keepdims=True))
        weights, shrink = jnp.exp(scores - new), jnp.exp(highest - new)
        total = total * shrink + jnp.sum(weights, axis=1, keepdims=True)
        values = jnp.dot(weights, v_ref[0, part, :].astype(jnp.float32))
        return new, total, result * shrink + values

    column = jnp.zeros((q.shape[0], 1), jnp.float32)
    start = column - jnp.inf, column, jnp.zeros(q.shape, jnp.float32)
    _, total, result = jax.lax.fori_loop(0, k_ref.shape[1] // block_k, step, start)
    out_ref[0] = (result / total).astype(out_ref.dtype)


def flash_attention(q, k, v, *, block=256, block_k=256):
    """The same with a softmax that goes on from block to block."""
    whole = pl.BlockSpec((1, *k.shape[1:]), lambda h, i: (h, 0, 0))
    part = pl.BlockSpec((1, block, q.shape[2]), lambda h, i: (h, i, 0))

    def body(*refs):
        _flash_body(*refs, block_k=block_k)

    return pl.pallas_call(
        body,
        grid=(q.shape[0], q.shape[1] // block),
        in_specs=[part, whole, whole],
        out_specs=part,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
    )(q, k, v)


def _matmul_body(x_ref, y_ref, out_ref):
    @pl.when(pl.program_id(2) == 0)
    def _():
        out_ref[...] = jnp.zeros_like(out_ref)

    out_ref[...] += jnp.dot(x_ref[...], y_ref[...])


def matmul(x, y, *, block=512):
    return pl.pallas_call(
        _matmul_body,
        grid=(x.shape[0] // block, y.shape[1] // block, x.shape[1] // block),
        in_specs=[
            pl.BlockSpec((block, block), lambda i, j, k: (i, k)),
            pl.BlockSpec((block, block), lambda i, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((block, block), lambda i, j, k: (i, j)),
        out_shape=jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype),
    )(x, y)
