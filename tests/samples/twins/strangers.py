"""Kernels as strangers write them. ``faults.json`` has faults that people make in them."""

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


def _top_body(x_ref: Any, best_ref: Any, place_ref: Any, *, columns: int) -> None:
    j, block = pl.program_id(1), x_ref.shape[1]

    @pl.when(j == 0)
    def _() -> None:
        best_ref[...] = jnp.full_like(best_ref, -jnp.inf)
        place_ref[...] = jnp.zeros_like(place_ref)

    place = lax.broadcasted_iota(I32, x_ref.shape, 1) + j * block
    new = jnp.where(place < columns, x_ref[...], -jnp.inf)
    pool = jnp.concatenate([best_ref[...], new], axis=1)
    places = jnp.concatenate([place_ref[...], place], axis=1)
    for k in range(K):
        top = pool.max(1, keepdims=True)
        at = jnp.where(pool == top, places, 2**30).min(1, keepdims=True)
        best_ref[:, k : k + 1], place_ref[:, k : k + 1] = top, at
        pool = jnp.where((pool == top) & (places == at), -jnp.inf, pool)


@autotune.tunable(rows=[8, 16], block=[128, 256, 512], reference=lambda x: lax.top_k(x, K))
def top_k(x: Any, *, rows: int = 8, block: int = 128) -> Any:
    height, columns = x.shape
    out = pl.BlockSpec((rows, K), lambda i, j: (i, 0))
    return pl.pallas_call(
        functools.partial(_top_body, columns=columns),
        grid=(height // rows, pl.cdiv(columns, block)),
        in_specs=[pl.BlockSpec((rows, block), lambda i, j: (i, j))],
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


# Layer normalisation of rows that are cut: mean, then variance, then the result.


def _layer_body(x_ref: Any, w_ref: Any, out_ref: Any, mean: Any, var: Any, *, width: int) -> None:
    phase, j, block = pl.program_id(1), pl.program_id(2), x_ref.shape[1]
    column = lax.broadcasted_iota(I32, x_ref.shape, 1) + j * block

    @pl.when((phase == 0) & (j == 0))
    def _() -> None:
        mean[...] = jnp.zeros_like(mean)
        var[...] = jnp.zeros_like(var)

    @pl.when(phase == 0)
    def _() -> None:
        x = jnp.where(column < width, x_ref[...], 0.0)
        mean[...] += x.sum(1, keepdims=True) / width

    @pl.when(phase == 1)
    def _() -> None:
        off = jnp.where(column < width, x_ref[...] - mean[...], 0.0)
        var[...] += (off * off).sum(1, keepdims=True) / width

    @pl.when(phase == 2)
    def _() -> None:
        out_ref[...] = (x_ref[...] - mean[...]) * lax.rsqrt(var[...] + 1e-5) * w_ref[...]


def _layer(x: Any, w: Any) -> Any:
    off = x - x.mean(1, keepdims=True)
    return off * lax.rsqrt((off * off).mean(1, keepdims=True) + 1e-5) * w


@autotune.tunable(rows=[8, 16], block=[128, 256, 512], reference=_layer)
def layer_norm(x: Any, w: Any, *, rows: int = 8, block: int = 128) -> Any:
    height, width = x.shape
    return pl.pallas_call(
        functools.partial(_layer_body, width=width),
        grid=(height // rows, 3, pl.cdiv(width, block)),
        in_specs=[
            pl.BlockSpec((rows, block), lambda i, p, j: (i, j)),
            pl.BlockSpec((1, block), lambda i, p, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((rows, block), lambda i, p, j: (i, jnp.where(p == 2, j, 0))),
        out_shape=like(x),
        scratch_shapes=[pltpu.VMEM((rows, 1), F32), pltpu.VMEM((rows, 1), F32)],
    )(x, w)


# Each run of 64 rows is sorted by itself, by comparing neighbours in turn.

RUN = 64


def _sort_body(x_ref: Any, out_ref: Any) -> None:
    block, lanes = x_ref.shape
    place = lax.broadcasted_iota(I32, (block, lanes), 0) % RUN

    def turn(t: Any, x: Any) -> Any:
        after = jnp.concatenate([x[1:], x[:1]], axis=0)
        before = jnp.concatenate([x[-1:], x[:-1]], axis=0)
        is_first = (place % 2 == t % 2) & (place < RUN - 1)
        is_second = (place % 2 != t % 2) & (place > 0)
        x_new = jnp.where(is_first, jnp.minimum(x, after), x)
        return jnp.where(is_second, jnp.maximum(x, before), x_new)

    out_ref[...] = lax.fori_loop(0, RUN, turn, x_ref[...])


@autotune.tunable(
    block=[64, 128, 256],
    reference=lambda x: jnp.sort(x.reshape(-1, RUN, x.shape[1]), axis=1).reshape(x.shape),
)
def sort_runs(x: Any, *, block: int = 64) -> Any:
    spec = pl.BlockSpec((block, 128), lambda i, j: (i, j))
    return pl.pallas_call(
        _sort_body,
        grid=(x.shape[0] // block, x.shape[1] // 128),
        in_specs=[spec],
        out_specs=spec,
        out_shape=like(x),
    )(x)


# Dropout by a hash of the element's number, so that it does not depend on the blocks.


def _hashed(number: Any) -> Any:
    h = number.astype(jnp.uint32) * jnp.uint32(0x9E3779B1)
    h = (h ^ (h >> 15)) * jnp.uint32(0x85EBCA77)
    return (h ^ (h >> 13)) >> 8


def _dropout_body(x_ref: Any, out_ref: Any, *, width: int) -> None:
    rows, columns = x_ref.shape
    row = lax.broadcasted_iota(I32, x_ref.shape, 0) + pl.program_id(0) * rows
    column = lax.broadcasted_iota(I32, x_ref.shape, 1) + pl.program_id(1) * columns
    keep = _hashed(row * width + column) >= jnp.uint32(2**24 // 4)
    out_ref[...] = jnp.where(keep, x_ref[...] / 0.75, 0.0)


def _dropout(x: Any) -> Any:
    keep = _hashed(jnp.arange(x.size).reshape(x.shape)) >= jnp.uint32(2**24 // 4)
    return jnp.where(keep, x / 0.75, 0.0)


@autotune.tunable(rows=[8, 64], columns=[128, 256], reference=_dropout)
def dropout(x: Any, *, rows: int = 8, columns: int = 128) -> Any:
    spec = pl.BlockSpec((rows, columns), lambda i, j: (i, j))
    return pl.pallas_call(
        functools.partial(_dropout_body, width=x.shape[1]),
        grid=(x.shape[0] // rows, x.shape[1] // columns),
        in_specs=[spec],
        out_specs=spec,
        out_shape=like(x),
        compiler_params=order("parallel", "parallel"),
    )(x)


# Attention inside of a window; a step takes one of the blocks of keys that the window can reach.

WINDOW = 300


def _window_body(
    q_ref: Any, k_ref: Any, v_ref: Any, out: Any, top: Any, total: Any, acc: Any
) -> None:
    i, t, block = pl.program_id(0), pl.program_id(1), q_ref.shape[0]
    behind = pl.num_programs(1) - 1

    @pl.when(t == 0)
    def _() -> None:
        top[...] = jnp.full_like(top, -1e30)
        total[...] = jnp.zeros_like(total)
        acc[...] = jnp.zeros_like(acc)

    @pl.when(i + t >= behind)
    def _() -> None:
        s = jnp.dot(q_ref[...], k_ref[...].T, precision="highest") * 0.125
        row = lax.broadcasted_iota(I32, s.shape, 0) + i * block
        column = lax.broadcasted_iota(I32, s.shape, 1) + (i + t - behind) * block
        s = jnp.where((column <= row) & (row - column < WINDOW), s, -1e30)
        new = jnp.maximum(top[...], s.max(1, keepdims=True))
        shrink, p = jnp.exp(top[...] - new), jnp.exp(s - new)
        p = jnp.where(s > -1e29, p, 0.0)
        total[...] = total[...] * shrink + p.sum(1, keepdims=True)
        acc[...] = acc[...] * shrink + jnp.dot(p, v_ref[...], precision="highest")
        top[...] = new

    @pl.when(t == behind)
    def _() -> None:
        out[...] = acc[...] / total[...]


def _window(q: Any, k: Any, v: Any) -> Any:
    row, column = jnp.arange(q.shape[0])[:, None], jnp.arange(q.shape[0])[None]
    s = jnp.dot(q, k.T, precision="highest") * 0.125
    s = jnp.where((column <= row) & (row - column < WINDOW), s, -jnp.inf)
    return jnp.dot(jax.nn.softmax(s, -1), v, precision="highest")


@autotune.tunable(block=[64, 128, 256], reference=_window)
def window_attention(q: Any, k: Any, v: Any, *, block: int = 64) -> Any:
    length, size = q.shape
    behind = pl.cdiv(WINDOW - 1, block)
    rows = pl.BlockSpec((block, size), lambda i, t: (i, 0))
    keys = pl.BlockSpec((block, size), lambda i, t: (jnp.maximum(i + t - behind, 0), 0))
    return pl.pallas_call(
        _window_body,
        grid=(length // block, behind + 1),
        in_specs=[rows, keys, keys],
        out_specs=rows,
        out_shape=like(q),
        scratch_shapes=[pltpu.VMEM((block, n), F32) for n in (1, 1, size)],
        compiler_params=order("parallel", "arbitrary"),
    )(q, k, v)


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
