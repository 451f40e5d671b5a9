"""Dot product of two vectors, added to a sum that is updated in place."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from autotune import Array, Axis, Config, Grid, Kernel, Problem, compiler_params

_LANES = 128
_FEWEST_ROWS, _MOST_ROWS = 8, 4096


def _body(
    x: Any,  # [block_rows, 128]
    y: Any,  # [block_rows, 128]
    initial: Any,  # [1, 1], the same buffer as `total`
    total: Any,  # [1, 1]
    *,
    row_axis: int,
    tail: int,
) -> None:
    step, last = pl.program_id(row_axis), pl.num_programs(row_axis) - 1
    block_rows = x.shape[0]

    def start() -> None:
        total[...] = initial[...]

    pl.when(step == 0)(start)

    def accumulate(rows: int) -> None:
        product = x[:rows, :].astype(jnp.float32) * y[:rows, :].astype(jnp.float32)
        lanes = jnp.sum(product, axis=0, keepdims=True)  # [1, 128]
        total[...] += jnp.sum(lanes, axis=1, keepdims=True)

    if tail == block_rows:
        accumulate(block_rows)
    else:  # beyond the last row a block holds garbage
        pl.when(step < last)(lambda: accumulate(block_rows))
        pl.when(step == last)(lambda: accumulate(tail))


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    rows, block_rows = _rows(problem), config["block_rows"]
    blocks = pl.cdiv(rows, block_rows)
    grid = Grid(config, rows=blocks)
    spec = pl.BlockSpec((block_rows, _LANES), grid.index_map(lambda rows: (rows, 0)))
    scalar = pl.BlockSpec((1, 1), grid.index_map(lambda: (0, 0)))
    call = pl.pallas_call(
        partial(_body, row_axis=grid.axis("rows"), tail=rows - block_rows * (blocks - 1)),
        grid=grid.sizes,
        in_specs=[spec, spec, scalar],
        out_specs=scalar,
        out_shape=jax.ShapeDtypeStruct((1, 1), jnp.float32),
        input_output_aliases={2: 0},
        compiler_params=compiler_params(config),
        name="tiled_dot",
    )
    padding = rows * _LANES - problem["n"]

    def tiled(vector: Any) -> Any:
        whole = jnp.pad(vector, (0, padding)) if padding else vector
        return whole.reshape(rows, _LANES)

    return lambda x, y, initial: call(tiled(x), tiled(y), initial)


def _plain(problem: Problem) -> Callable[..., Any]:
    row, column = (1, problem["n"]), (problem["n"], 1)

    def dot(x: Any, y: Any, initial: Any) -> Any:
        return initial + jnp.dot(
            x.reshape(row), y.reshape(column), preferred_element_type=jnp.float32
        )

    return dot


def _reference(_: Problem) -> Callable[..., Any]:
    def dot(x: Any, y: Any, initial: Any) -> Any:
        return initial + jnp.sum(x.astype(jnp.float32) * y.astype(jnp.float32))

    return dot


def _rows(problem: Problem) -> int:
    return -(-problem["n"] // _LANES)


def _inputs(problem: Problem) -> list[Array]:
    shape = (problem["n"],)
    vectors = [Array(name=name, shape=shape, dtype=problem.dtype) for name in ("x", "y")]
    return [*vectors, Array(name="initial", shape=(1, 1), dtype="float32")]


def _block_rows(problem: Problem) -> list[int]:
    """Powers of two, and all rows unless they are many."""
    rows = _rows(problem)
    sizes = [2**p for p in range(31) if _FEWEST_ROWS <= 2**p < min(rows, _MOST_ROWS + 1)]
    return [*sizes, rows] if rows <= _MOST_ROWS else sizes


KERNEL = Kernel(
    name="tiled_dot",
    dims=("n",),
    dtypes=("bfloat16", "float32"),
    axes=(Axis(name="block_rows", choices=_block_rows),),
    default=lambda problem: {"block_rows": min(128, _rows(problem))},
    grid=("rows",),
    inputs=_inputs,
    build=_build,
    reference=_reference,
    baseline=_plain,
    doc="initial + x · y, in float32",
)
