"""Kernels as people write them. ``faults.json`` has texts that stand here once, and what people
write in their place by mistake."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import autotune

F32, I32 = jnp.float32, jnp.int32


def like(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def order(*semantics: str) -> Any:
    return pltpu.CompilerParams(dimension_semantics=semantics)


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
        out_shape=like(x),
        scratch_shapes=[pltpu.VMEM(x.shape[1:], F32)],
    )(x)


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
        out_shape=like(x),
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
        out_shape=like(q),
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
        out_shape=like(x),
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


# Back substitution from the last block of rows to the first.


def _back_body(u_ref: Any, b_ref: Any, x_ref: Any, *, block: int, steps: int) -> None:
    here = steps - 1 - pl.program_id(1)

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        x_ref[...] = jnp.zeros_like(x_ref)

    def solve(t: Any, _: Any) -> Any:
        r = block - 1 - t
        row = here * block + r
        known = jnp.dot(u_ref[pl.ds(r, 1), :], x_ref[...], precision="highest")
        x_ref[pl.ds(row, 1), :] = b_ref[pl.ds(r, 1), :] - known
        return 0

    lax.fori_loop(0, block, solve, 0)


def _unit_upper(u: Any) -> Any:
    return jnp.triu(u, 1) / u.shape[0]


def _back(u: Any, b: Any) -> Any:
    whole = _unit_upper(u) + jnp.eye(u.shape[0], dtype=u.dtype)
    return lax.linalg.triangular_solve(whole, b, left_side=True, lower=False, unit_diagonal=True)


@autotune.tunable(block=[8, 16, 32, 64], reference=_back)
def back_substitution(u: Any, b: Any, *, block: int = 8) -> Any:
    (n, columns), steps = b.shape, b.shape[0] // block
    return pl.pallas_call(
        functools.partial(_back_body, block=block, steps=steps),
        grid=(columns // 128, steps),
        in_specs=[
            pl.BlockSpec((block, n), lambda j, i: (steps - 1 - i, 0)),
            pl.BlockSpec((block, 128), lambda j, i: (steps - 1 - i, j)),
        ],
        out_specs=pl.BlockSpec((n, 128), lambda j, i: (0, j)),
        out_shape=like(b),
        compiler_params=order("parallel", "arbitrary"),
    )(_unit_upper(u), b)


# Sums of segments of sorted rows by one-hot products; steps that touch no segment are left out.


def _segments_body(first: Any, last: Any, id_ref: Any, x_ref: Any, out_ref: Any, acc: Any) -> None:
    s, i, width = pl.program_id(0), pl.program_id(1), out_ref.shape[0]

    @pl.when(i == 0)
    def _() -> None:
        acc[...] = jnp.zeros_like(acc)

    @pl.when((first[i] < (s + 1) * width) & (last[i] >= s * width))
    def _() -> None:
        segment = lax.broadcasted_iota(I32, (width, id_ref.shape[1]), 0) + s * width
        onehot = (segment == id_ref[...]).astype(F32)
        acc[...] += jnp.dot(onehot, x_ref[...], precision="highest")

    @pl.when(i == pl.num_programs(1) - 1)
    def _() -> None:
        out_ref[...] = acc[...]


def _sorted_ids(ids: Any, x: Any) -> Any:
    """A block of rows ends in the first row of a segment; the last quarter is empty."""
    rows = ids.shape[1]
    found = np.minimum((np.arange(rows) + 1) * SEGMENTS // rows, SEGMENTS - 1)
    return np.where(found // 64 == 3, 191, found)[None].astype(np.int32)


SEGMENTS = 256


@autotune.tunable(
    rows=[64, 128, 256],
    segments=[8, 64, 128],
    values={"ids": _sorted_ids},
    reference=lambda ids, x: jax.ops.segment_sum(x, ids[0], SEGMENTS),
)
def segment_sum(ids: Any, x: Any, *, rows: int = 64, segments: int = 8) -> Any:
    n, lanes = x.shape
    return pl.pallas_call(
        _segments_body,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(SEGMENTS // segments, n // rows),
            in_specs=[
                pl.BlockSpec((1, rows), lambda s, i, *_: (0, i)),
                pl.BlockSpec((rows, lanes), lambda s, i, *_: (i, 0)),
            ],
            out_specs=pl.BlockSpec((segments, lanes), lambda s, i, *_: (s, 0)),
            scratch_shapes=[pltpu.VMEM((segments, lanes), F32)],
        ),
        out_shape=jax.ShapeDtypeStruct((SEGMENTS, lanes), F32),
    )(ids[0, ::rows], ids[0, rows - 1 :: rows], ids, x)


# A 3 x 3 convolution of images; rows and their halo come by a copy into one of two buffers.


def _image_body(x_hbm: Any, w_ref: Any, out_ref: Any, rows_ref: Any, arrived: Any) -> None:
    i, steps, block = pl.program_id(0), pl.num_programs(0), out_ref.shape[0]

    def fetch(step: Any) -> Any:
        part = x_hbm.at[pl.ds(step * block, block + 2)]
        return pltpu.make_async_copy(part, rows_ref.at[step % 2], arrived.at[step % 2])

    @pl.when(i == 0)
    def _() -> None:
        fetch(0).start()

    @pl.when(i + 1 < steps)
    def _() -> None:
        fetch(i + 1).start()

    fetch(i).wait()
    x, width = rows_ref[i % 2], out_ref.shape[1]
    total = jnp.zeros(out_ref.shape, F32)
    for dy in range(3):
        for dx in range(3):
            total += x[dy : dy + block, dx : dx + width] * w_ref[dy, dx]
    out_ref[...] = total


def _image(x: Any, w: Any) -> Any:
    h, width = x.shape[0], x.shape[1]
    p = jnp.pad(x, ((1, 1), (1, 1), (0, 0)))
    return sum(p[a : a + h, b : b + width] * w[a, b] for a in range(3) for b in range(3))


@autotune.tunable(block=[4, 8, 16, 32], reference=_image)
def image_convolution(x: Any, w: Any, *, block: int = 4) -> Any:
    h, width, channels = x.shape
    return pl.pallas_call(
        _image_body,
        grid=(h // block,),
        in_specs=[
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec((3, 3, channels), lambda i: (0, 0, 0)),
        ],
        out_specs=pl.BlockSpec((block, width, channels), lambda i: (i, 0, 0)),
        out_shape=like(x),
        scratch_shapes=[
            pltpu.VMEM((2, block + 2, width + 2, channels), F32),
            pltpu.SemaphoreType.DMA((2,)),
        ],
        compiler_params=order("arbitrary"),
    )(jnp.pad(x, ((1, 1), (1, 1), (0, 0))), w)


# The eight largest of each row and their places, merged block by block.

K = 8


def _top_body(x_ref: Any, eight_ref: Any, place_ref: Any, *, columns: int) -> None:
    c, block = pl.program_id(1), x_ref.shape[1]

    @pl.when(c == 0)
    def _() -> None:
        eight_ref[...] = jnp.full_like(eight_ref, -jnp.inf)
        place_ref[...] = jnp.zeros_like(place_ref)

    place = lax.broadcasted_iota(I32, x_ref.shape, 1) + c * block
    new = jnp.where(place < columns, x_ref[...], -jnp.inf)
    pool = jnp.concatenate([eight_ref[...], new], axis=1)
    places = jnp.concatenate([place_ref[...], place], axis=1)
    for k in range(K):
        top = pool.max(1, keepdims=True)
        at = jnp.where(pool == top, places, 2**30).min(1, keepdims=True)
        eight_ref[:, k : k + 1], place_ref[:, k : k + 1] = top, at
        pool = jnp.where((pool == top) & (places == at), -jnp.inf, pool)


@autotune.tunable(rows=[8, 16], block=[128, 256, 512], reference=lambda x: lax.top_k(x, K))
def top_k(x: Any, *, rows: int = 8, block: int = 128) -> Any:
    height, columns = x.shape
    out = pl.BlockSpec((rows, K), lambda r, c: (r, 0))
    return pl.pallas_call(
        functools.partial(_top_body, columns=columns),
        grid=(height // rows, pl.cdiv(columns, block)),
        in_specs=[pl.BlockSpec((rows, block), lambda r, c: (r, c))],
        out_specs=[out, out],
        out_shape=[jax.ShapeDtypeStruct((height, K), t) for t in (x.dtype, I32)],
        compiler_params=order("parallel", "arbitrary"),
    )(x)


# A product with a sparse matrix of dense blocks: rows of blocks of unlike lengths, one is empty.

CUT = 128


def _sparse_body(starts: Any, columns: Any, a_ref: Any, b_ref: Any, out_ref: Any) -> None:
    i, t = pl.program_id(1), pl.program_id(2)

    @pl.when(t == 0)
    def _() -> None:
        out_ref[...] = jnp.zeros_like(out_ref)

    @pl.when(starts[i] + t < starts[i + 1])
    def _() -> None:
        out_ref[...] += jnp.dot(a_ref[0], b_ref[...], precision="highest")


def _row_starts(starts: Any, columns: Any, a: Any, b: Any) -> Any:
    shares = np.linspace(0, 1, starts.shape[0]) ** 1.5
    found = (shares * columns.shape[0]).astype(np.int32)
    found[2] = found[1]
    return found


def _block_columns(starts: Any, columns: Any, a: Any, b: Any) -> Any:
    return np.random.default_rng(2).integers(0, b.shape[0] // CUT, columns.shape[0])


def _sparse(starts: Any, columns: Any, a: Any, b: Any) -> Any:
    rows = jnp.searchsorted(starts, jnp.arange(columns.shape[0]), side="right") - 1
    parts = jnp.einsum("nij,njk->nik", a, b.reshape(-1, CUT, b.shape[1])[columns],
                       precision="highest")  # fmt: skip
    return jax.ops.segment_sum(parts, rows, starts.shape[0] - 1).reshape(-1, b.shape[1])


MOST = 16


@autotune.tunable(
    block=[128, 256, 512],
    values={"starts": _row_starts, "columns": _block_columns},
    reference=_sparse,
)
def block_sparse(starts: Any, columns: Any, a: Any, b: Any, *, block: int = 128) -> Any:
    rows, lanes, count = starts.shape[0] - 1, b.shape[1], columns.shape[0]

    def stored(j: Any, i: Any, t: Any, starts: Any, columns: Any) -> Any:
        return jnp.minimum(starts[i] + t, count - 1)

    def taken(j: Any, i: Any, t: Any, starts: Any, columns: Any) -> Any:
        return columns[stored(j, i, t, starts, columns)]

    return pl.pallas_call(
        _sparse_body,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(lanes // block, rows, MOST),
            in_specs=[
                pl.BlockSpec((1, CUT, CUT), lambda *at: (stored(*at), 0, 0)),
                pl.BlockSpec((CUT, block), lambda *at: (taken(*at), at[0])),
            ],
            out_specs=pl.BlockSpec((CUT, block), lambda j, i, t, *_: (i, j)),
        ),
        out_shape=jax.ShapeDtypeStruct((rows * CUT, lanes), F32),
    )(starts, columns, a, b)


# New keys go to their pages: a copy for each token, all of a step in flight at once.

PAGE = 16


def _pages_body(pages: Any, places: Any, new_ref: Any, _: Any, cache: Any, sent: Any) -> None:
    first, block = pl.program_id(0) * new_ref.shape[0], new_ref.shape[0]

    def copy(t: Any) -> Any:
        place = places[first + t]
        page = pages[place // PAGE]
        return pltpu.make_async_copy(new_ref.at[t], cache.at[page, place % PAGE], sent)

    def start(t: Any, carry: Any) -> Any:
        copy(t).start()
        return carry

    def wait(t: Any, carry: Any) -> Any:
        copy(t).wait()
        return carry

    lax.fori_loop(0, block, start, 0)
    lax.fori_loop(0, block, wait, 0)


def _token_places(pages: Any, places: Any, new: Any, cache: Any) -> Any:
    return np.arange(places.shape[0]) + PAGE // 2


def _page_table(pages: Any, places: Any, new: Any, cache: Any) -> Any:
    return np.random.default_rng(3).permutation(cache.shape[0])[: pages.shape[0]]


@autotune.tunable(
    block=[8, 16, 32, 64],
    values={"pages": _page_table, "places": _token_places},
    reference=lambda pages, places, new, cache: cache.at[pages[places // PAGE], places % PAGE].set(
        new
    ),
)
def page_update(pages: Any, places: Any, new: Any, cache: Any, *, block: int = 8) -> Any:
    return pl.pallas_call(
        _pages_body,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(new.shape[0] // block,),
            in_specs=[
                pl.BlockSpec((block, *new.shape[1:]), lambda i, *_: (i, 0, 0)),
                pl.BlockSpec(memory_space=pl.ANY),
            ],
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
            scratch_shapes=[pltpu.SemaphoreType.DMA],
        ),
        out_shape=like(cache),
        input_output_aliases={3: 0},
    )(pages, places, new, cache)


# A product with weights of four bits, two in a byte, and a scale for each group of rows.

GROUP = 128


def _nibbles_body(x_ref: Any, w_ref: Any, scale_ref: Any, out_ref: Any, acc: Any) -> None:
    k = pl.program_id(2)

    @pl.when(k == 0)
    def _() -> None:
        acc[...] = jnp.zeros_like(acc)

    packed = w_ref[...].astype(I32)
    low = (packed << 28) >> 28
    high = packed >> 4
    w = jnp.stack([low, high], axis=1).reshape(2 * packed.shape[0], packed.shape[1])
    scale = jnp.repeat(scale_ref[...], GROUP, axis=0)
    acc[...] += jnp.dot(x_ref[...], w.astype(F32) * scale, precision="highest")

    @pl.when(k == pl.num_programs(2) - 1)
    def _() -> None:
        out_ref[...] = acc[...]


def _nibbles(x: Any, w: Any, scales: Any) -> Any:
    wide = w.astype(I32)
    parts = jnp.stack([(wide << 28) >> 28, wide >> 4], axis=1).reshape(-1, w.shape[1])
    return jnp.dot(x, parts * jnp.repeat(scales, GROUP, axis=0), precision="highest")


@autotune.tunable(m=[64, 128], n=[128, 256], groups=[8], reference=_nibbles)
def four_bits(x: Any, w: Any, scales: Any, *, m: int = 64, n: int = 128, groups: int = 8) -> Any:
    k = groups * GROUP
    return pl.pallas_call(
        _nibbles_body,
        grid=(x.shape[0] // m, w.shape[1] // n, x.shape[1] // k),
        in_specs=[
            pl.BlockSpec((m, k), lambda i, j, s: (i, s)),
            pl.BlockSpec((k // 2, n), lambda i, j, s: (s, j)),
            pl.BlockSpec((groups, n), lambda i, j, s: (s, j)),
        ],
        out_specs=pl.BlockSpec((m, n), lambda i, j, s: (i, j)),
        out_shape=jax.ShapeDtypeStruct((x.shape[0], w.shape[1]), F32),
        scratch_shapes=[pltpu.VMEM((m, n), F32)],
    )(x, w, scales)


# Rows of a table by their numbers, several copies in flight.


def _gather_body(ids: Any, table: Any, out_ref: Any, sems: Any, *, flight: int) -> None:
    block = out_ref.shape[0]
    first = pl.program_id(0) * block

    def copy(t: Any) -> Any:
        return pltpu.make_async_copy(
            table.at[ids[first + t]], out_ref.at[t], sems.at[lax.rem(t, flight)]
        )

    def step(t: Any, carry: Any) -> Any:
        @pl.when(t >= flight)
        def _() -> None:
            copy(t - flight).wait()

        copy(t).start()
        return carry

    def drain(t: Any, carry: Any) -> Any:
        copy(t).wait()
        return carry

    lax.fori_loop(0, block, step, 0)
    lax.fori_loop(block - flight, block, drain, 0)


@autotune.tunable(
    block=[8, 16, 32, 64],
    flight=[4, 8],
    values={"ids": lambda ids, table: np.arange(ids.shape[0]) * 7919 % table.shape[0]},
    reference=lambda ids, table: table[ids],
)
def gather_rows(ids: Any, table: Any, *, block: int = 8, flight: int = 4) -> Any:
    return pl.pallas_call(
        functools.partial(_gather_body, flight=flight),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(ids.shape[0] // block,),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=pl.BlockSpec((block, *table.shape[1:]), lambda i, *_: (i, 0, 0)),
            scratch_shapes=[pltpu.SemaphoreType.DMA((flight,))],
        ),
        out_shape=jax.ShapeDtypeStruct((ids.shape[0], *table.shape[1:]), table.dtype),
    )(ids, table)


# The sum of each row, in parts; how many there are is a constant. The problem is too long to be run
# as it is, and so is the copy that brings the rows.

COLUMNS = 4096


def _parts_body(x_hbm: Any, w_ref: Any, out_ref: Any, x_ref: Any, arrived: Any) -> None:
    here = pl.ds(pl.program_id(0) * x_ref.shape[0], x_ref.shape[0])
    copy = pltpu.make_async_copy(x_hbm.at[here, pl.ds(0, COLUMNS)], x_ref, arrived)
    copy.start()
    copy.wait()

    def part(t: Any, total: Any) -> Any:
        at = pl.ds(t * 128, 128)
        return total + (x_ref[:, at] * w_ref[:, at]).sum(1, keepdims=True)

    total = lax.fori_loop(0, COLUMNS // 128, part, jnp.zeros((x_ref.shape[0], 1), F32))
    out_ref[...] = jnp.broadcast_to(total, out_ref.shape)


@autotune.tunable(
    block=[8, 16, 32],
    reference=lambda x, w: jnp.broadcast_to((x * w).sum(1, keepdims=True), (x.shape[0], 128)),
)
def sum_of_parts(x: Any, w: Any, *, block: int = 8) -> Any:
    return pl.pallas_call(
        _parts_body,
        grid=(x.shape[0] // block,),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec((1, COLUMNS), lambda i: (0, 0))],
        out_specs=pl.BlockSpec((block, 128), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((x.shape[0], 128), F32),
        scratch_shapes=[pltpu.VMEM((block, COLUMNS), F32), pltpu.SemaphoreType.DMA],
    )(x, w)


# A product of which each device has a part, summed over devices; a pipeline in the body fetches.


def _pipeline_body(x_hbm: Any, w_hbm: Any, out_hbm: Any, acc_ref: Any, *, block: int) -> None:
    i, steps = pl.program_id(0), x_hbm.shape[1] // 128

    def inner(x_ref: Any, w_ref: Any, out_ref: Any) -> None:
        part = jnp.dot(x_ref[...], w_ref[...], precision="highest")
        acc_ref[...] = part + jnp.where(pl.program_id(0) == 0, 0.0, acc_ref[...])

        @pl.when(pl.program_id(0) == steps - 1)
        def _() -> None:
            out_ref[...] = acc_ref[...]

    pltpu.emit_pipeline(
        inner,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((block, 128), lambda k: (i, k)),
            pl.BlockSpec((128, w_hbm.shape[1]), lambda k: (k, 0)),
        ],
        out_specs=[pl.BlockSpec((block, w_hbm.shape[1]), lambda k: (i, 0))],
    )(x_hbm, w_hbm, out_hbm)


@autotune.tunable(
    block=[16, 32, 64],
    mesh={"tensor": 2},
    dims="m k, k n",
    reference=lambda x, w: jnp.dot(x, w, precision="highest"),
)
def divided_product(x: Any, w: Any, *, block: int = 16) -> Any:
    def product(x: Any, w: Any) -> Any:
        shape = (x.shape[0], w.shape[1])
        part = pl.pallas_call(
            functools.partial(_pipeline_body, block=block),
            grid=(x.shape[0] // block,),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)] * 2,
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
            out_shape=jax.ShapeDtypeStruct(shape, F32),
            scratch_shapes=[pltpu.VMEM((block, w.shape[1]), F32)],
            compiler_params=order("parallel"),
        )(x, w)
        return lax.psum(part, "tensor")

    by, mesh = jax.sharding.PartitionSpec, jax.sharding.get_abstract_mesh()
    specs = {"in_specs": (by(None, "tensor"), by("tensor")), "out_specs": by()}
    return jax.shard_map(product, mesh=mesh, check_vma=False, **specs)(x, w)


# Every device gets the rows of all: they go around the ring, a step at a time.

DEVICES = 4


def _ring_body(x_ref: Any, out_ref: Any, mine: Any, sent: Any, received: Any) -> None:
    me, rows = lax.axis_index("ring"), x_ref.shape[0]
    right, left = lax.rem(me + 1, DEVICES), lax.rem(me + DEVICES - 1, DEVICES)
    barrier = pltpu.get_barrier_semaphore()
    for neighbour in (left, right):
        pl.semaphore_signal(barrier, device_id=(neighbour,))
    pl.semaphore_wait(barrier, 2)
    own = pltpu.make_async_copy(x_ref, out_ref.at[pl.ds(me * rows, rows)], mine)
    own.start()
    own.wait()
    for step in range(DEVICES - 1):
        part = pl.ds(lax.rem(me + DEVICES - step, DEVICES) * rows, rows)
        copy = pltpu.make_async_remote_copy(
            out_ref.at[part], out_ref.at[part], sent.at[step], received.at[step], (right,)
        )
        copy.start()
        copy.wait()


@autotune.tunable(
    unused=[1, 2], mesh={"ring": DEVICES}, reference=lambda x: jnp.tile(x, (DEVICES, 1))
)
def ring_gather(x: Any, *, unused: int = 1) -> Any:
    def gather(x: Any) -> Any:
        return pl.pallas_call(
            _ring_body,
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
            out_shape=jax.ShapeDtypeStruct((DEVICES * x.shape[0], x.shape[1]), x.dtype),
            scratch_shapes=[
                pltpu.SemaphoreType.DMA,
                pltpu.SemaphoreType.DMA((DEVICES - 1,)),
                pltpu.SemaphoreType.DMA((DEVICES - 1,)),
            ],
            compiler_params=pltpu.CompilerParams(collective_id=0),
        )(x)

    ring = jax.sharding.PartitionSpec("ring")
    mesh = jax.sharding.get_abstract_mesh()
    specs = {"in_specs": ring, "out_specs": ring, "check_vma": False}
    return jax.shard_map(gather, mesh=mesh, **specs)(x)


# A product as a generator writes it: it asks one operand for its sizes, and checks nothing.


@autotune.tunable(m=[64, 128], n=[128, 256], k=[128, 256])
def generated_product(x: Any, y: Any, *, m: int = 128, n: int = 128, k: int = 128) -> Any:
    def body(x_hbm: Any, y_hbm: Any, out_ref: Any, acc: Any) -> None:
        i, j = pl.program_id(0), pl.program_id(1)
        acc[...] = jnp.zeros_like(acc)

        def inner(x_ref: Any, y_ref: Any) -> None:
            acc[...] += jnp.dot(x_ref[...], y_ref[...], precision="highest")

        rows, columns = (m, k), (k, n)
        specs = pl.BlockSpec(rows, lambda s: (i, s)), pl.BlockSpec(columns, lambda s: (s, j))
        pltpu.emit_pipeline(inner, grid=(x.shape[1] // k,), in_specs=specs)(x_hbm, y_hbm)
        out_ref[...] = acc[...]

    return pl.pallas_call(
        body,
        grid=(x.shape[0] // m, y.shape[1] // n),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)] * 2,
        out_specs=pl.BlockSpec((m, n), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), F32),
        scratch_shapes=[pltpu.VMEM((m, n), F32)],
    )(x, y)


# Tokens of sequences in pages that are copied by hand: how many blocks there are, data decides.


def _paged_body(
    lengths: Any, table: Any, cache: Any, out_ref: Any, rows: Any, acc: Any, arrived: Any
) -> None:
    seq, block, page = pl.program_id(0), rows.shape[0], cache.shape[1]
    most = table.shape[0] // lengths.shape[0]
    acc[...] = jnp.zeros_like(acc)

    def step(b: Any, carry: Any) -> Any:
        def copy(p: Any) -> Any:
            place = seq * most + jnp.minimum(b * (block // page) + p, most - 1)
            rows_of_page = rows.at[pl.ds(p * page, page)]
            return pltpu.make_async_copy(cache.at[table[place]], rows_of_page, arrived)

        lax.fori_loop(0, block // page, lambda p, _: copy(p).start(), None)
        lax.fori_loop(0, block // page, lambda p, _: copy(p).wait(), None)
        token = b * block + lax.broadcasted_iota(I32, rows.shape, 0)
        acc[...] += jnp.sum(jnp.where(token < lengths[seq], rows[...], 0.0), 0)
        return carry

    lax.fori_loop(0, pl.cdiv(lengths[seq], block), step, 0)
    out_ref[...] = acc[...]


def _paged(lengths: Any, table: Any, cache: Any) -> Any:
    pages = cache[table.reshape(lengths.shape[0], -1)]
    tokens = pages.reshape(lengths.shape[0], -1, *cache.shape[2:])
    is_there = jnp.arange(tokens.shape[1])[:, None, None] < lengths[:, None, None, None]
    return jnp.sum(jnp.where(is_there, tokens, 0.0), 1)


@autotune.tunable(
    block=[64, 128, 256],
    values={
        "lengths": lambda lengths, table, cache: (
            table.shape[0] // lengths.shape[0] * cache.shape[1] - 7 * np.arange(lengths.shape[0])
        ),
        "table": lambda table, cache: np.arange(table.shape[0]) * 7 % cache.shape[0],
    },
    reference=_paged,
)
def paged_sum(lengths: Any, table: Any, cache: Any, *, block: int = 64) -> Any:
    heads = cache.shape[2:]
    return pl.pallas_call(
        _paged_body,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=lengths.shape,
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=pl.BlockSpec((None, *heads), lambda i, *_: (i, 0, 0)),
            scratch_shapes=[
                pltpu.VMEM((block, *heads), F32),
                pltpu.VMEM(heads, F32),
                pltpu.SemaphoreType.DMA,
            ],
        ),
        out_shape=jax.ShapeDtypeStruct((lengths.shape[0], *heads), F32),
    )(lengths, table, cache)
