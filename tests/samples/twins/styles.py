"""Kernels as people write them, each under ``autotune.tunable`` with a plain list of block sizes.

Nothing says which dimension a block cuts. ``faults.json`` says how copies of this file are broken.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
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


# Attention inside of segments; the mask compares the ids of a block of rows with all.


def _segments_body(
    q_ref: Any, k_ref: Any, v_ref: Any, row_ref: Any, col_ref: Any, out: Any
) -> None:
    s = jnp.dot(q_ref[...], k_ref[...].T, preferred_element_type=F32)
    same = row_ref[...][:, :1] == col_ref[...][:1, :]
    p = jnp.exp(jnp.where(same, s - s.max(1, keepdims=True), -1e30))
    out[...] = jnp.dot(p, v_ref[...], preferred_element_type=F32) / p.sum(1, keepdims=True)


def _ids(length: int) -> Any:
    return (jnp.arange(length) * 3 // length).astype(jnp.int32)


def _segment_attention(q: Any, k: Any, v: Any) -> Any:
    ids = _ids(q.shape[0])
    s = jnp.where(ids[:, None] == ids[None, :], jnp.dot(q, k.T, precision="highest"), -jnp.inf)
    return jnp.dot(jax.nn.softmax(s, -1), v, precision="highest")


@autotune.tunable(block=[64, 128], reference=_segment_attention)
def segment_attention(q: Any, k: Any, v: Any, *, block: int = 64) -> Any:
    length, size = q.shape
    ids = _ids(length)
    rows = pl.BlockSpec((block, size), lambda i: (i, 0))
    whole = pl.BlockSpec((length, size), lambda i: (0, 0))
    return pl.pallas_call(
        _segments_body,
        grid=(pl.cdiv(length, block),),
        in_specs=[
            rows,
            whole,
            whole,
            pl.BlockSpec((block, 128), lambda i: (i, 0)),
            pl.BlockSpec((8, length), lambda i: (0, 0)),
        ],
        out_specs=rows,
        out_shape=_out(q),
    )(q, k, v, jnp.broadcast_to(ids[:, None], (length, 128)), jnp.broadcast_to(ids, (8, length)))


# A triangular solve by blocks of rows: the solution so far is a block that every step sees.


def _solve_body(l_ref: Any, b_ref: Any, out_ref: Any, *, block: int) -> None:
    i = pl.program_id(0)

    @pl.when(i == 0)
    def _() -> None:
        out_ref[...] = jnp.zeros_like(out_ref)

    def row(r: Any, _: Any) -> Any:
        known = jnp.dot(l_ref[pl.ds(r, 1), :], out_ref[...], precision="highest")
        out_ref[pl.ds(i * block + r, 1), :] = b_ref[pl.ds(r, 1), :] - known
        return 0

    lax.fori_loop(0, block, row, 0)


def _strict(m: Any) -> Any:
    return jnp.tril(m, -1) / m.shape[0]


def _solve(m: Any, b: Any) -> Any:
    unit = _strict(m) + jnp.eye(m.shape[0], dtype=m.dtype)
    return lax.linalg.triangular_solve(unit, b, left_side=True, lower=True, unit_diagonal=True)


@autotune.tunable(block=[8, 16, 32], reference=_solve)
def triangular_solve(m: Any, b: Any, *, block: int = 8) -> Any:
    n, columns = b.shape
    return pl.pallas_call(
        functools.partial(_solve_body, block=block),
        grid=(n // block,),
        in_specs=[
            pl.BlockSpec((block, n), lambda i: (i, 0)),
            pl.BlockSpec((block, columns), lambda i: (i, 0)),
        ],
        out_specs=pl.BlockSpec((n, columns), lambda i: (0, 0)),
        out_shape=_out(b),
    )(_strict(m), b)


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


# A product of int8 with a scale for each block of k and each column.


def _scaled_body(a_ref: Any, b_ref: Any, scale_ref: Any, out_ref: Any, acc_ref: Any) -> None:
    k = pl.program_id(2)

    @pl.when(k == 0)
    def _() -> None:
        acc_ref[...] = jnp.zeros_like(acc_ref)

    part = jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.int32).astype(F32)
    acc_ref[...] += part * scale_ref[0, :1, :]

    @pl.when(k == pl.num_programs(2) - 1)
    def _() -> None:
        out_ref[...] = acc_ref[...]


def _scaled(a: Any, b: Any, scales: Any) -> Any:
    steps = scales.shape[0]
    cut = a.shape[1] // steps
    parts = [
        jnp.dot(
            a[:, s * cut : (s + 1) * cut].astype(F32),
            b[s * cut : (s + 1) * cut].astype(F32),
            precision="highest",
        )
        * scales[s, :1]
        for s in range(steps)
    ]
    return functools.reduce(jnp.add, parts)


@autotune.tunable(block_m=[32, 64, 128], block_n=[128, 256], reference=_scaled)
def block_scaled(a: Any, b: Any, scales: Any, *, block_m: int = 32, block_n: int = 128) -> Any:
    (m, k), n = a.shape, b.shape[1]
    cut = k // scales.shape[0]
    return pl.pallas_call(
        _scaled_body,
        grid=(pl.cdiv(m, block_m), pl.cdiv(n, block_n), scales.shape[0]),
        in_specs=[
            pl.BlockSpec((block_m, cut), lambda i, j, s: (i, s)),
            pl.BlockSpec((cut, block_n), lambda i, j, s: (s, j)),
            pl.BlockSpec((1, 8, block_n), lambda i, j, s: (s, 0, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j, s: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), F32),
        scratch_shapes=[pltpu.VMEM((block_m, block_n), F32)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary")
        ),
    )(a, b, scales)


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


# Neighbours: each block takes the one before, itself and the one after.


def _blur_body(before: Any, here: Any, after: Any, out_ref: Any) -> None:
    i, last = pl.program_id(0), pl.num_programs(0) - 1
    block = here.shape[0]
    above = jnp.where(i == 0, 0.0, before[block - 1 :, :])
    below = jnp.where(i == last, 0.0, after[:1, :])
    rows = jnp.concatenate([above, here[...], below], axis=0)
    out_ref[...] = rows[:-2] + 2.0 * rows[1:-1] + rows[2:]


def _blur(x: Any) -> Any:
    padded = jnp.pad(x, ((1, 1), (0, 0)))
    return padded[:-2] + 2.0 * padded[1:-1] + padded[2:]


@autotune.tunable(block=[8, 16, 32], reference=_blur)
def blur(x: Any, *, block: int = 8) -> Any:
    rows, lanes = x.shape
    count = rows // block

    def spec(index: Any) -> Any:
        return pl.BlockSpec((block, lanes), index)

    return pl.pallas_call(
        _blur_body,
        grid=(count,),
        in_specs=[
            spec(lambda i: (jnp.maximum(i - 1, 0), 0)),
            spec(lambda i: (i, 0)),
            spec(lambda i: (jnp.minimum(i + 1, count - 1), 0)),
        ],
        out_specs=spec(lambda i: (i, 0)),
        out_shape=_out(x),
    )(x, x, x)


# The normalisation of rows, then a sum of all of them, which the last grid step finishes.


def _norm_sum_body(x_ref: Any, w_ref: Any, out_ref: Any, acc_ref: Any, *, rows: int) -> None:
    i, block = pl.program_id(0), x_ref.shape[0]

    @pl.when(i == 0)
    def _() -> None:
        acc_ref[...] = jnp.zeros_like(acc_ref)

    x = x_ref[...]
    normal = x * lax.rsqrt(jnp.mean(x * x, axis=1, keepdims=True) + 1e-6) * w_ref[...]
    row = lax.broadcasted_iota(jnp.int32, x.shape, 0) + i * block
    acc_ref[...] += jnp.where(row < rows, normal, 0.0).sum(0, keepdims=True)

    @pl.when(i == pl.num_programs(0) - 1)
    def _() -> None:
        out_ref[...] = jnp.broadcast_to(acc_ref[...] / rows, out_ref.shape)


def _norm_sum(x: Any, w: Any) -> Any:
    normal = x * lax.rsqrt(jnp.mean(x * x, axis=1, keepdims=True) + 1e-6) * w
    return jnp.broadcast_to(normal.mean(0, keepdims=True), (8, x.shape[1]))


@autotune.tunable(block=[16, 32, 64], reference=_norm_sum)
def norm_mean(x: Any, w: Any, *, block: int = 16) -> Any:
    rows, lanes = x.shape
    return pl.pallas_call(
        functools.partial(_norm_sum_body, rows=rows),
        grid=(pl.cdiv(rows, block),),
        in_specs=[
            pl.BlockSpec((block, lanes), lambda i: (i, 0)),
            pl.BlockSpec((1, lanes), lambda i: (0, 0)),
        ],
        out_specs=pl.BlockSpec((8, lanes), lambda i: (0, 0)),
        out_shape=jax.ShapeDtypeStruct((8, lanes), F32),
        scratch_shapes=[pltpu.VMEM((1, lanes), F32)],
    )(x, w)


# New rows go to slots of a cache, which the grid steps share.


def _update_body(slots: Any, new_ref: Any, cache_ref: Any, out_ref: Any) -> None:
    i, block = pl.program_id(0), new_ref.shape[0]

    @pl.when(i == 0)
    def _() -> None:
        out_ref[...] = cache_ref[...]

    def row(t: Any, carry: Any) -> Any:
        out_ref[pl.ds(slots[i * block + t], 1), :] = new_ref[pl.ds(t, 1), :]
        return carry

    lax.fori_loop(0, block, row, 0)


def _slots(new: Any, cache: Any) -> Any:
    return np.random.default_rng(0).permutation(cache.shape[0])[: new.shape[0]]


@autotune.tunable(
    block=[8, 16, 32],
    dims="n, n d, rows d",
    values={"slots": _slots},
    reference=lambda slots, new, cache: cache.at[slots].set(new),
)
def cache_update(slots: Any, new: Any, cache: Any, *, block: int = 8) -> Any:
    spec = pl.BlockSpec(cache.shape, lambda i, slots: (0, 0))
    rows = pl.BlockSpec((block, new.shape[1]), lambda i, slots: (i, 0))
    return pl.pallas_call(
        _update_body,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(pl.cdiv(new.shape[0], block),),
            in_specs=[rows, spec],
            out_specs=spec,
        ),
        out_shape=_out(cache),
    )(slots, new, cache)


# The place of each element in the order of its column: equal ones keep theirs.


def _rank_body(x_ref: Any, y_ref: Any, out_ref: Any) -> None:
    i, j, block = pl.program_id(0), pl.program_id(1), x_ref.shape[0]

    @pl.when(j == 0)
    def _() -> None:
        out_ref[...] = jnp.zeros_like(out_ref)

    x, y = x_ref[...][:, None], y_ref[...][None]
    mine = lax.broadcasted_iota(jnp.int32, (block, block, 1), 0) + i * block
    other = lax.broadcasted_iota(jnp.int32, (block, block, 1), 1) + j * block
    before = (y < x) | ((y == x) & (other < mine))
    out_ref[...] += before.astype(jnp.int32).sum(1)


def _ranks(x: Any) -> Any:
    return jnp.argsort(jnp.argsort(x, axis=0, stable=True), axis=0).astype(jnp.int32)


@autotune.tunable(block=[8, 16, 32], reference=_ranks)
def sort_ranks(x: Any, *, block: int = 8) -> Any:
    rows, lanes = x.shape
    return pl.pallas_call(
        _rank_body,
        grid=(pl.cdiv(rows, block), pl.cdiv(rows, block)),
        in_specs=[
            pl.BlockSpec((block, lanes), lambda i, j: (i, 0)),
            pl.BlockSpec((block, lanes), lambda i, j: (j, 0)),
        ],
        out_specs=pl.BlockSpec((block, lanes), lambda i, j: (i, 0)),
        out_shape=_out(x),
    )(x, x)


# The two largest of each row, carried from block to block.


def _top_body(x_ref: Any, out_ref: Any, *, columns: int) -> None:
    i, block = pl.program_id(0), x_ref.shape[1]

    @pl.when(i == 0)
    def _() -> None:
        out_ref[...] = jnp.full_like(out_ref, -jnp.inf)

    column = lax.broadcasted_iota(jnp.int32, x_ref.shape, 1) + i * block
    x = jnp.where(column < columns, x_ref[...], -jnp.inf)
    first = x.max(axis=1, keepdims=True)
    second = jnp.where(x == first, -jnp.inf, x).max(axis=1, keepdims=True)
    one, two = out_ref[:, 0:1], out_ref[:, 1:2]
    out_ref[:, 0:1] = jnp.maximum(one, first)
    out_ref[:, 1:2] = jnp.maximum(jnp.minimum(one, first), jnp.maximum(two, second))


@autotune.tunable(block=[128, 256], reference=lambda x: lax.top_k(x, 2)[0])
def top_two(x: Any, *, block: int = 128) -> Any:
    rows, columns = x.shape
    return pl.pallas_call(
        functools.partial(_top_body, columns=columns),
        grid=(pl.cdiv(columns, block),),
        in_specs=[pl.BlockSpec((rows, block), lambda i: (0, i))],
        out_specs=pl.BlockSpec((rows, 2), lambda i: (0, 0)),
        out_shape=jax.ShapeDtypeStruct((rows, 2), x.dtype),
    )(x)


# The sums of ragged groups of rows, of which one is empty.


def _groups_body(starts: Any, x_ref: Any, out_ref: Any) -> None:
    g, i, block = pl.program_id(0), pl.program_id(1), x_ref.shape[0]

    @pl.when(i == 0)
    def _() -> None:
        out_ref[...] = jnp.zeros_like(out_ref)

    row = lax.broadcasted_iota(jnp.int32, x_ref.shape, 0) + i * block
    inside = (row >= starts[g]) & (row < starts[g + 1])
    out_ref[0] += jnp.where(inside, x_ref[...], 0.0).sum(0, keepdims=True)


def _starts(starts: Any, x: Any) -> Any:
    """Groups of unlike sizes; the second is empty."""
    shares = np.linspace(0, 1, starts.shape[0]) ** 2
    found = (shares * x.shape[0]).astype(np.int32)
    found[1] = found[2]
    return found


def _group_sums(starts: Any, x: Any) -> Any:
    row = jnp.arange(x.shape[0])
    inside = (row >= starts[:-1, None]) & (row < starts[1:, None])
    return (inside.astype(x.dtype) @ x)[:, None]


@autotune.tunable(block=[16, 32], values={"starts": _starts}, reference=_group_sums)
def group_sums(starts: Any, x: Any, *, block: int = 16) -> Any:
    (groups, (rows, lanes)) = starts.shape[0] - 1, x.shape
    return pl.pallas_call(
        _groups_body,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(groups, pl.cdiv(rows, block)),
            in_specs=[pl.BlockSpec((block, lanes), lambda g, i, starts: (i, 0))],
            out_specs=pl.BlockSpec((1, 1, lanes), lambda g, i, starts: (g, 0, 0)),
        ),
        out_shape=jax.ShapeDtypeStruct((groups, 1, lanes), x.dtype),
    )(starts, x)
