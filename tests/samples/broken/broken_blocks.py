"""Blocks that are wrong: their maps, their order, their edges, and what is carried between them."""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from broken_parts import (
    ARBITRARY,
    HOW,
    LANES,
    PARALLEL,
    blocks,
    is_right,
    position,
    rows,
    semantics,
)
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune.declaring.kernel import Array, Kernel
from autotune.declaring.pallas import Grid
from autotune.domain.problem import Problem

_ROWS = 8
_BY_ROWS = blocks("block_rows", "rows", _ROWS)
_LOWEST = -1e30

Shapes = Callable[[Problem], tuple[tuple[int, ...], ...]]


def _kernel(
    name,
    dims,
    axes,
    shapes,
    build,
    reference,
):
    """All are float32. Each axis has the one value that keeps the problem small."""
    return Kernel(
        name=name,
        dims=dims,
        dtypes=("float32",),
        axes=(*axes, HOW),
        default=lambda p: {axis.name: next(iter(axis.choices(p))) for axis in (*axes, HOW)},
        inputs=lambda p: [
            Array(name=f"x{n}", shape=shape, dtype=p.dtype) for n, shape in enumerate(shapes(p))
        ],
        build=build,
        reference=reference,
    )


def _shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def _double(x, out):
    out[...] = 2 * x[...]


def _transposed(problem, config):
    grid = Grid(config, i=problem["n"] // LANES, j=problem["n"] // LANES)
    straight, swapped = (grid.index_map(f) for f in (lambda i, j: (i, j), lambda i, j: (j, i)))
    spec = partial(pl.BlockSpec, (LANES, LANES))
    return pl.pallas_call(
        _double,
        grid=grid.sizes,
        in_specs=[spec(straight if is_right(config) else swapped)],
        out_specs=spec(straight),
        out_shape=_shape(problem["n"], problem["n"]),
        compiler_params=semantics(config, PARALLEL, PARALLEL),
    )


def _revisited(problem, config):
    """Sums into the output block itself: it must stay until it is done."""
    order = ("i", "k") if is_right(config) else ("k", "i")
    grid = Grid(
        config.replace(grid_order=order), i=problem["rows"] // _ROWS, k=problem["k"] // LANES
    )

    def body(x, out):
        def start():
            out[...] = jnp.zeros_like(out)

        pl.when(pl.program_id(grid.axis("k")) == 0)(start)
        out[...] += x[...]

    return pl.pallas_call(
        body,
        grid=grid.sizes,
        in_specs=[rows(_ROWS, grid.index_map(lambda i, k: (i, k)))],
        out_specs=rows(_ROWS, grid.index_map(lambda i: (i, 0))),
        out_shape=_shape(problem["rows"], LANES),
        compiler_params=semantics(config, ARBITRARY, ARBITRARY),
    )


def _floor(problem, config):
    """Rounded down, the grid never reaches a ragged last block."""
    count = pl.cdiv(problem["rows"], _ROWS) if is_right(config) else problem["rows"] // _ROWS
    spec = rows(_ROWS, lambda i: (i, 0))
    return pl.pallas_call(
        _double,
        grid=(count,),
        in_specs=[spec],
        out_specs=spec,
        out_shape=_shape(problem["rows"], LANES),
        compiler_params=semantics(config, PARALLEL),
    )


def _stale(problem, config):
    """Each step needs the block before its own: in place, that one is overwritten by then. Two
    blocks do not show it, because block 0 is fetched once for both of the first steps."""
    spec = partial(rows, _ROWS)
    return pl.pallas_call(
        _double,
        grid=(problem["rows"] // _ROWS,),
        in_specs=[spec(lambda i: (jnp.maximum(i - 1, 0), 0))],
        out_specs=spec(lambda i: (i, 0)),
        out_shape=_shape(problem["rows"], LANES),
        input_output_aliases={} if is_right(config) else {0: 0},
        compiler_params=semantics(config, ARBITRARY),
    )


def _mean(problem, config):
    """The mean of ragged rows: the padding is masked, and must not be counted either."""
    columns, count = problem["columns"], pl.cdiv(problem["columns"], LANES)
    counted = columns if is_right(config) else count * LANES

    def body(x, out, acc):
        step = pl.program_id(1)

        def start():
            acc[...] = jnp.zeros_like(acc)

        def store():
            mean = jnp.sum(acc[...], axis=1, keepdims=True) / counted
            out[...] = jnp.broadcast_to(mean, out.shape)

        pl.when(step == 0)(start)
        acc[...] += jnp.where(position(x.shape, 1) < columns - step * LANES, x[...], 0)
        pl.when(step == count - 1)(store)

    return pl.pallas_call(
        body,
        grid=(problem["rows"] // _ROWS, count),
        in_specs=[rows(_ROWS, lambda i, j: (i, j))],
        out_specs=rows(_ROWS, lambda i, j: (i, 0)),
        out_shape=_shape(problem["rows"], LANES),
        scratch_shapes=[pltpu.VMEM((_ROWS, LANES), jnp.float32)],
        compiler_params=semantics(config, PARALLEL, ARBITRARY),
    )


def _heads(problem, config):
    """Neighbouring query heads share a head of the keys; ``%`` deals them out in turn."""
    per_head = problem["q_heads"] // problem["kv_heads"]

    def shared(head, i):
        index = lax.div(head, per_head) if is_right(config) else head % problem["kv_heads"]
        return index, i, 0

    def body(q, kv, out):
        out[...] = q[...] * kv[...]

    spec = partial(pl.BlockSpec, (None, _ROWS, LANES))
    mine = spec(lambda head, i: (head, i, 0))
    return pl.pallas_call(
        body,
        grid=(problem["q_heads"], problem["rows"] // _ROWS),
        in_specs=[mine, spec(shared)],
        out_specs=mine,
        out_shape=_shape(problem["q_heads"], problem["rows"], LANES),
        compiler_params=semantics(config, PARALLEL, PARALLEL),
    )


def _attention(problem, config):
    """The online softmax: what was summed under an older maximum has to shrink with it."""

    def body(q, k, v, out, top, weight, acc):
        def start():
            top[...] = jnp.full_like(top, _LOWEST)
            weight[...] = jnp.zeros_like(weight)
            acc[...] = jnp.zeros_like(acc)

        def store():
            out[...] = acc[...] / weight[...]

        pl.when(pl.program_id(1) == 0)(start)
        scores = jnp.dot(q[...], k[...].T, preferred_element_type=jnp.float32)
        scores *= 1 / math.sqrt(LANES)
        highest = jnp.maximum(top[...], jnp.max(scores, axis=1, keepdims=True))
        shrink, weights = jnp.exp(top[...] - highest), jnp.exp(scores - highest)
        top[...] = highest
        weight[...] = shrink * weight[...] + jnp.sum(weights, axis=1, keepdims=True)
        rescaled = shrink * acc[...] if is_right(config) else acc[...]
        acc[...] = rescaled + jnp.dot(weights, v[...], preferred_element_type=jnp.float32)
        pl.when(pl.program_id(1) == pl.num_programs(1) - 1)(store)

    mine, keys = rows(_ROWS, lambda i, j: (i, 0)), rows(LANES, lambda i, j: (j, 0))
    return pl.pallas_call(
        body,
        grid=(problem["rows"] // _ROWS, problem["keys"] // LANES),
        in_specs=[mine, keys, keys],
        out_specs=mine,
        out_shape=_shape(problem["rows"], LANES),
        scratch_shapes=[pltpu.VMEM((_ROWS, LANES), jnp.float32)] * 3,
        compiler_params=semantics(config, PARALLEL, ARBITRARY),
    )


def _softmax(q, k, v):
    return jax.nn.softmax(q @ k.T / math.sqrt(LANES)) @ v


def _shifted(x):
    return 2 * jnp.concatenate([x[:_ROWS], x[:-_ROWS]])


TRANSPOSED_MAP = _kernel(
    "transposed_map",
    ("n",),
    (blocks("block_n", "n", LANES),),
    lambda p: ((p["n"], p["n"]),),
    _transposed,
    lambda _: lambda x: 2 * x,
)
REVISITED_OUTPUT = _kernel(
    "revisited_output",
    ("rows", "k"),
    (_BY_ROWS, blocks("block_k", "k", LANES)),
    lambda p: ((p["rows"], p["k"]),),
    _revisited,
    lambda p: lambda x: x.reshape(p["rows"], -1, LANES).sum(1),
)
FLOOR_GRID = _kernel(
    "floor_grid",
    ("rows",),
    (_BY_ROWS,),
    lambda p: ((p["rows"], LANES),),
    _floor,
    lambda _: lambda x: 2 * x,
)
STALE_ALIAS = _kernel(
    "stale_alias",
    ("rows",),
    (_BY_ROWS,),
    lambda p: ((p["rows"], LANES),),
    _stale,
    lambda _: _shifted,
)
PADDED_MEAN = _kernel(
    "padded_mean",
    ("rows", "columns"),
    (_BY_ROWS, blocks("block_columns", "columns", LANES)),
    lambda p: ((p["rows"], p["columns"]),),
    _mean,
    lambda p: lambda x: jnp.broadcast_to(x.mean(1, keepdims=True), (p["rows"], LANES)),
)
GROUPED_HEADS = _kernel(
    "grouped_heads",
    ("q_heads", "kv_heads", "rows"),
    (_BY_ROWS,),
    lambda p: tuple((p[heads], p["rows"], LANES) for heads in ("q_heads", "kv_heads")),
    _heads,
    lambda p: lambda q, kv: q * jnp.repeat(kv, p["q_heads"] // p["kv_heads"], 0),
)
NO_RESCALE = _kernel(
    "no_rescale",
    ("rows", "keys"),
    (_BY_ROWS, blocks("block_keys", "keys", LANES)),
    lambda p: tuple((p[dim], LANES) for dim in ("rows", "keys", "keys")),
    _attention,
    lambda _: _softmax,
)
