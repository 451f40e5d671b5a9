"""Kernels as people write them, each under ``autotune.tunable`` with a plain list of block sizes.

Nothing says which dimension a block cuts. ``faults.json`` says how copies of this file are broken.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import autotune

F32 = jnp.float32


def _out(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


# A prefix sum over the rows, whose total is carried from block to block.


def _scan_body(x_ref: Any, out_ref: Any, total_ref: Any) -> None:
    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        total_ref[...] = jnp.zeros_like(total_ref)

    def row(r: Any, carry: Any) -> Any:
        carry = carry + x_ref[r]
        out_ref[r] = carry
        return carry

    total_ref[...] = lax.fori_loop(0, x_ref.shape[0], row, total_ref[...])


@autotune.tunable(block=[8, 16, 32], reference=lambda x: jnp.cumsum(x, 0))
def prefix_sum(x: Any, *, block: int = 8) -> Any:
    return pl.pallas_call(
        _scan_body,
        grid=(pl.cdiv(x.shape[0], block),),
        in_specs=[pl.BlockSpec((block, *x.shape[1:]), lambda i: (i, 0, 0))],
        out_specs=pl.BlockSpec((block, *x.shape[1:]), lambda i: (i, 0, 0)),
        out_shape=_out(x),
        scratch_shapes=[pltpu.VMEM(x.shape[1:], F32)],
    )(x)


# A linear recurrence over time, the state in scratch, two grid axes.


def _recurrence_body(a_ref: Any, x_ref: Any, out_ref: Any, state_ref: Any) -> None:
    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        state_ref[...] = jnp.zeros_like(state_ref)

    def step(t: Any, state: Any) -> Any:
        state = a_ref[pl.ds(t, 1), :] * state + x_ref[pl.ds(t, 1), :]
        out_ref[pl.ds(t, 1), :] = state
        return state

    state_ref[...] = lax.fori_loop(0, a_ref.shape[0], step, state_ref[...])


def _recurrence(a: Any, x: Any) -> Any:
    def step(state: Any, pair: Any) -> Any:
        state = pair[0] * state + pair[1]
        return state, state

    return lax.scan(step, jnp.zeros(a.shape[1:], a.dtype), (a, x))[1]


@autotune.tunable(block_t=[16, 32], lanes=[128, 256], reference=_recurrence)
def recurrence(a: Any, x: Any, *, block_t: int = 16, lanes: int = 128) -> Any:
    spec = pl.BlockSpec((block_t, lanes), lambda j, t: (t, j))
    return pl.pallas_call(
        _recurrence_body,
        grid=(x.shape[1] // lanes, x.shape[0] // block_t),
        in_specs=[spec, spec],
        out_specs=spec,
        out_shape=_out(x),
        scratch_shapes=[pltpu.VMEM((1, lanes), F32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
    )(a, x)


# A maximum over all columns, in one output block that each step visits.


def _maximum_body(x_ref: Any, out_ref: Any) -> None:
    block_max = jnp.max(x_ref[...], axis=1, keepdims=True)

    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        out_ref[...] = jnp.full_like(out_ref, -jnp.inf)

    out_ref[...] = jnp.maximum(out_ref[...], block_max)


@autotune.tunable(
    block=[128, 256, 512],
    reference=lambda x: jnp.broadcast_to(x.max(1, keepdims=True), (x.shape[0], 128)),
)
def row_maximum(x: Any, *, block: int = 128) -> Any:
    rows, columns = x.shape
    return pl.pallas_call(
        _maximum_body,
        grid=(pl.cdiv(columns, block),),
        in_specs=[pl.BlockSpec((rows, block), lambda i: (0, i))],
        out_specs=pl.BlockSpec((rows, 128), lambda i: (0, 0)),
        out_shape=jax.ShapeDtypeStruct((rows, 128), x.dtype),
    )(x)


# The softmax of rows in two passes over the columns: the first grid axis is the pass.


def _softmax_body(x_ref: Any, out_ref: Any, top_ref: Any, sum_ref: Any) -> None:
    phase, j = pl.program_id(0), pl.program_id(1)

    @pl.when((phase == 0) & (j == 0))
    def _() -> None:
        top_ref[...] = jnp.full_like(top_ref, -jnp.inf)
        sum_ref[...] = jnp.zeros_like(sum_ref)

    @pl.when(phase == 0)
    def _() -> None:
        top = jnp.maximum(top_ref[...], jnp.max(x_ref[...], axis=1, keepdims=True))
        rescaled = sum_ref[...] * jnp.exp(top_ref[...] - top)
        sum_ref[...] = rescaled + jnp.sum(jnp.exp(x_ref[...] - top), axis=1, keepdims=True)
        top_ref[...] = top

    @pl.when(phase == 1)
    def _() -> None:
        out_ref[...] = jnp.exp(x_ref[...] - top_ref[...]) / sum_ref[...]


@autotune.tunable(columns=[128, 256], reference=lambda x: jax.nn.softmax(x, 1))
def two_pass_softmax(x: Any, *, columns: int = 128) -> Any:
    rows = x.shape[0]
    return pl.pallas_call(
        _softmax_body,
        grid=(2, x.shape[1] // columns),
        in_specs=[pl.BlockSpec((rows, columns), lambda p, j: (0, j))],
        out_specs=pl.BlockSpec((rows, columns), lambda p, j: (0, j * p)),
        out_shape=_out(x),
        scratch_shapes=[pltpu.VMEM((rows, 1), F32), pltpu.VMEM((rows, 1), F32)],
    )(x)


# FlashAttention as tutorials have it: a loop over blocks of keys inside of the body.


def _flash_body(q_ref: Any, k_ref: Any, v_ref: Any, out_ref: Any, *, block_kv: int) -> None:
    q = q_ref[0]
    keys = k_ref.shape[1]

    def step(j: Any, carry: Any) -> Any:
        top, total, acc = carry
        k = k_ref[0, pl.ds(j * block_kv, block_kv), :]
        v = v_ref[0, pl.ds(j * block_kv, block_kv), :]
        s = jnp.dot(q, k.T, preferred_element_type=F32) * 0.125
        new_top = jnp.maximum(top, s.max(1, keepdims=True))
        p = jnp.exp(s - new_top)
        shrink = jnp.exp(top - new_top)
        acc = acc * shrink + jnp.dot(p, v, preferred_element_type=F32)
        return new_top, total * shrink + p.sum(1, keepdims=True), acc

    rows = q.shape[0]
    start = (jnp.full((rows, 1), -1e30, F32), jnp.zeros((rows, 1), F32), jnp.zeros(q.shape, F32))
    _, total, acc = lax.fori_loop(0, keys // block_kv, step, start)
    out_ref[0] = acc / total


def _attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("hqd,hkd->hqk", q, k, precision="highest") * 0.125
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, -1), v, precision="highest")


@autotune.tunable(block_q=[128, 256], block_kv=[128, 256, 384], reference=_attention)
def tutorial_flash(q: Any, k: Any, v: Any, *, block_q: int = 128, block_kv: int = 128) -> Any:
    heads, length, size = q.shape
    rows = pl.BlockSpec((1, block_q, size), lambda h, i: (h, i, 0))
    keys = pl.BlockSpec((1, length, size), lambda h, i: (h, 0, 0))
    return pl.pallas_call(
        functools.partial(_flash_body, block_kv=block_kv),
        grid=(heads, pl.cdiv(length, block_q)),
        in_specs=[rows, keys, keys],
        out_specs=rows,
        out_shape=_out(q),
    )(q, k, v)


# A causal convolution over time: the last rows of the block before are kept in scratch.

TAPS = 4


def _convolution_body(x_ref: Any, w_ref: Any, out_ref: Any, halo_ref: Any) -> None:
    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        halo_ref[...] = jnp.zeros_like(halo_ref)

    block = x_ref.shape[0]
    rows = jnp.concatenate([halo_ref[...], x_ref[...]], axis=0)
    total = jnp.zeros(x_ref.shape, F32)
    for tap in range(TAPS):
        total += rows[8 - tap : 8 - tap + block, :] * w_ref[tap : tap + 1, :]
    out_ref[...] = total
    halo_ref[...] = x_ref[block - 8 :, :]


def _convolution(x: Any, w: Any) -> Any:
    padded = jnp.pad(x, ((TAPS - 1, 0), (0, 0)))
    ends = [padded[TAPS - 1 - t : TAPS - 1 - t + x.shape[0]] * w[t] for t in range(TAPS)]
    return functools.reduce(jnp.add, ends)


@autotune.tunable(block_t=[16, 32, 64], reference=_convolution)
def causal_convolution(x: Any, w: Any, *, block_t: int = 16) -> Any:
    length, lanes = x.shape
    return pl.pallas_call(
        _convolution_body,
        grid=(pl.cdiv(length, block_t),),
        in_specs=[
            pl.BlockSpec((block_t, lanes), lambda i: (i, 0)),
            pl.BlockSpec((8, lanes), lambda i: (0, 0)),
        ],
        out_specs=pl.BlockSpec((block_t, lanes), lambda i: (i, 0)),
        out_shape=_out(x),
        scratch_shapes=[pltpu.VMEM((8, lanes), F32)],
    )(x, w)


# The largest value of each row and its place, over blocks of columns that may be ragged.


def _argmax_body(x_ref: Any, out_ref: Any, best_ref: Any, place_ref: Any, *, columns: int) -> None:
    j, block = pl.program_id(1), x_ref.shape[1]

    @pl.when(j == 0)
    def _() -> None:
        best_ref[...] = jnp.full_like(best_ref, -jnp.inf)
        place_ref[...] = jnp.zeros_like(place_ref)

    places = lax.broadcasted_iota(jnp.int32, x_ref.shape, 1) + j * block
    x = jnp.where(places < columns, x_ref[...], -jnp.inf)
    best = x.max(1, keepdims=True)
    place = jnp.where(x == best, places, columns).min(1, keepdims=True)
    place_ref[...] = jnp.where(best > best_ref[...], place, place_ref[...])
    best_ref[...] = jnp.maximum(best, best_ref[...])

    @pl.when(j == pl.num_programs(1) - 1)
    def _() -> None:
        out_ref[...] = jnp.broadcast_to(place_ref[...].astype(F32), out_ref.shape)


def _argmax(x: Any) -> Any:
    return jnp.broadcast_to(jnp.argmax(x, 1)[:, None].astype(F32), (x.shape[0], 128))


@autotune.tunable(rows=[8, 16], block=[128, 256], reference=_argmax)
def row_argmax(x: Any, *, rows: int = 8, block: int = 128) -> Any:
    height, columns = x.shape
    return pl.pallas_call(
        functools.partial(_argmax_body, columns=columns),
        grid=(pl.cdiv(height, rows), pl.cdiv(columns, block)),
        in_specs=[pl.BlockSpec((rows, block), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((rows, 128), lambda i, j: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((height, 128), F32),
        scratch_shapes=[pltpu.VMEM((rows, 1), F32), pltpu.VMEM((rows, 1), jnp.int32)],
    )(x)
