"""RMS normalisation of rows in one pass over HBM, chunk by chunk over the features."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune import Array, Axis, Config, Grid, Kernel, Problem, compiler_params

_EPSILON = 1e-6
_MOST_ROWS, _WIDEST_CHUNK = 1024, 8192


def _body(
    x: Any,  # [block_rows, features]
    weight: Any,  # [1, features]
    out: Any,  # [block_rows, features]
    squares: Any,  # [block_rows, chunk], summed lane by lane; one reduction at the end
) -> None:
    features, chunk = x.shape[1], squares.shape[1]

    def add_squares(where: Any, width: int) -> None:
        part = x[:, where].astype(jnp.float32)
        squares[:, :width] += part * part

    squares[...] = jnp.zeros_like(squares)
    _each_chunk(features, chunk, add_squares)
    mean = jnp.sum(squares[...], axis=1, keepdims=True) / features
    scale = lax.rsqrt(mean + _EPSILON)  # [block_rows, 1]

    def normalize(where: Any, _width: int) -> None:
        part = x[:, where].astype(jnp.float32) * scale
        out[:, where] = (part * weight[:, where].astype(jnp.float32)).astype(out.dtype)

    _each_chunk(features, chunk, normalize)


def _each_chunk(features: int, chunk: int, visit: Callable[[Any, int], None]) -> None:
    """``visit(slice, width)`` for every chunk; the last may be narrower and is not in the loop."""
    looped = (features - 1) // chunk
    if looped:
        starts = pl.loop(0, looped)
        starts(lambda i: visit(pl.ds(pl.multiple_of(i * chunk, chunk), chunk), chunk))
    visit(pl.ds(looped * chunk, features - looped * chunk), features - looped * chunk)


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    rows, features, block_rows = problem["rows"], problem["features"], config["block_rows"]
    grid = Grid(config, rows=pl.cdiv(rows, block_rows))
    spec = pl.BlockSpec((block_rows, features), grid.index_map(lambda rows: (rows, 0)))
    weight_spec = pl.BlockSpec((1, features), grid.index_map(lambda: (0, 0)))
    call = pl.pallas_call(
        _body,
        grid=grid.sizes,
        in_specs=[spec, weight_spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((rows, features), jnp.dtype(problem.dtype)),
        scratch_shapes=[pltpu.VMEM((block_rows, config["block_features"]), jnp.float32)],
        compiler_params=compiler_params(config),
        name="rmsnorm",
    )
    return lambda x, weight: call(x, weight.reshape(1, features))


def _plain(problem: Problem) -> Callable[..., Any]:
    dtype = jnp.dtype(problem.dtype)

    def rmsnorm(x: Any, weight: Any) -> Any:
        wide = x.astype(jnp.float32)
        mean = jnp.mean(wide * wide, axis=1, keepdims=True)
        return (wide * lax.rsqrt(mean + _EPSILON) * weight.astype(jnp.float32)).astype(dtype)

    return rmsnorm


def _inputs(problem: Problem) -> list[Array]:
    rows, features = problem["rows"], problem["features"]
    return [
        Array(name="x", shape=(rows, features), dtype=problem.dtype),
        Array(name="weight", shape=(features,), dtype=problem.dtype),
    ]


def _block_rows(problem: Problem) -> list[int]:
    """Powers of two from one sublane tile up: a row is long, so a few rows fill a block."""
    rows = problem["rows"]
    sizes = [2**p for p in range(3, 11) if 2**p < rows]
    return [*sizes, rows] if rows <= _MOST_ROWS else sizes


def _block_features(problem: Problem) -> list[int]:
    """Chunks start on a lane tile; the whole row is one, too."""
    features = problem["features"]
    sizes = [2**p for p in range(7, 14) if 2**p < features]
    return [*sizes, features] if features <= _WIDEST_CHUNK else sizes


def _default(problem: Problem) -> dict[str, int]:
    """128 rows, fewer of long ones."""
    rows, features = problem["rows"], problem["features"]
    fitting = next(size for size in (128, 64, 32, 16, 8) if size * features <= 2**19 or size == 8)
    return {"block_rows": min(fitting, rows), "block_features": min(512, features)}


KERNEL = Kernel(
    name="rmsnorm",
    dims=("rows", "features"),
    dtypes=("bfloat16", "float32"),
    axes=(
        Axis(name="block_rows", choices=_block_rows, dim="rows"),
        Axis(name="block_features", choices=_block_features),
    ),
    default=_default,
    grid=("rows",),
    inputs=_inputs,
    build=_build,
    reference=_plain,
    doc="x / sqrt(mean(x²) + 1e-6) * weight over the features of each row",
)
