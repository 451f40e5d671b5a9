"""tokamax's ragged dot: rows in groups, each group times weights of its own; forward, and the two
gradients. What the kernel fetches depends on the group sizes, so these are known."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from autotune import Array, Axis, Config, Kernel, Option, Problem, block
from autotune_kernels.group_sizes import equal_groups
from autotune_kernels.parts import arrays, needing, part

_OPS = "tokamax._src.ops.ragged_dot"
_TILE = 128
_TILES = ("tile_m", "tile_k", "tile_n")
_FORWARD, _DLHS, _DRHS = "fwd", "dlhs", "drhs"
_CONTRACTING = {_FORWARD: ((1,), (1,)), _DLHS: ((1,), (2,)), _DRHS: ((0,), (0,))}


def _inputs(problem: Problem) -> list[Array]:
    m, k, n, groups = (problem[dim] for dim in ("m", "k", "n", "groups"))
    weights = {_FORWARD: (groups, k, n), _DLHS: (groups, n, k), _DRHS: (m, n)}
    return [
        Array(name="sizes", shape=(groups,), dtype="int32", values=partial(equal_groups, problem)),
        *arrays(problem, lhs=(m, k), rhs=weights[str(problem.option("mode"))]),
    ]


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    mode, kernel = problem.option("mode"), part(f"{_OPS}.pallas_mosaic_tpu_kernel")
    settings = {
        "precision": part("tokamax._src.precision").canonicalize_precision(None),
        "out_dtype": jnp.dtype(problem.dtype),
        "tiling": tuple(config[tile] for tile in _TILES),
        "input_buffer_count": config["input_buffer_count"],
    }

    def ragged_dot(sizes: Any, lhs: Any, rhs: Any) -> Any:
        if mode == _DRHS:
            return kernel.tgmm(lhs.mT, rhs, sizes, **settings)
        return kernel.gmm(lhs, rhs, sizes, **settings, transpose_rhs=mode == _DLHS)

    return ragged_dot


def _numbers(problem: Problem) -> Any:
    mode = str(problem.option("mode"))
    return jax.lax.RaggedDotDimensionNumbers(
        dot_dimension_numbers=(_CONTRACTING[mode], ((), ())),
        lhs_ragged_dimensions=[0],
        rhs_group_dimensions=[] if mode == _DRHS else [0],
    )


def _reference(problem: Problem) -> Callable[..., Any]:
    """XLA's ragged dot of the same operands."""

    def ragged_dot(sizes: Any, lhs: Any, rhs: Any) -> Any:
        out = jax.lax.ragged_dot_general(
            lhs, rhs, sizes, _numbers(problem), preferred_element_type=jnp.float32
        )
        return out.astype(lhs.dtype)

    return ragged_dot


def _tokamax_config(problem: Problem, _chip: str) -> dict[str, int]:
    """Its own heuristics for the TPU that the code is told of."""
    ops = part(f"{_OPS}.pallas_mosaic_tpu")
    numbers = {
        _FORWARD: ops.DEFAULT_RAGGED_DOT_DIM_NUMS,
        _DLHS: ops.DLHS_RAGGED_DOT_DIM_NUMS,
        _DRHS: ops.DRHS_RAGGED_DOT_DIM_NUMS,
    }[str(problem.option("mode"))]
    sizes, lhs, rhs = (jax.ShapeDtypeStruct(a.shape, a.dtype) for a in _inputs(problem))
    bound = ops.PallasMosaicTpuRaggedDot().bind(
        lhs, rhs, group_sizes=sizes, ragged_dot_dimension_numbers=numbers
    )
    chosen = bound.heuristics_config
    return {name: getattr(chosen, name) for name in (*_TILES, "input_buffer_count")}


def _tile_m(problem: Problem) -> list[int]:
    """The kernel wants whole tiles of rows."""
    return [size for size in (64, 128, 256, 512, 1024) if problem["m"] % size == 0]


def _check(problem: Problem) -> str | None:
    if problem["m"] % _TILE:
        return f"m={problem['m']} must be a multiple of {_TILE}"
    narrow = [dim for dim in ("k", "n") if problem[dim] < _TILE]
    return f"{narrow[0]}={problem[narrow[0]]} must be at least {_TILE}" if narrow else None


KERNEL = Kernel(
    name="tokamax_ragged_dot",
    dims=("m", "k", "n", "groups"),
    dtypes=("bfloat16", "float32"),
    options=(Option(name="mode", choices=(_FORWARD, _DLHS, _DRHS), default=_FORWARD),),
    axes=(
        Axis(name="tile_m", choices=_tile_m, dim="m"),
        block("tile_k", "k"),
        block("tile_n", "n"),
        Axis(name="input_buffer_count", choices=lambda _: (2, 3, 4)),
    ),
    default=lambda _: {**dict.fromkeys(_TILES, _TILE), "input_buffer_count": 2},
    default_on=_tokamax_config,
    inputs=_inputs,
    build=_build,
    reference=_reference,
    check=needing("tokamax", "tokamax", _check),
    reduced=lambda problem: problem.with_dims(groups=min(3, problem["groups"])),
    doc="tokamax ragged_dot: rows in groups, each group times its own weights",
)
