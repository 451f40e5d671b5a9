"""JAX's grouped matrix products for TPU (megablox): rows in groups, each with its own weights."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from autotune import Array, Axis, Config, Kernel, Option, Problem, block
from autotune.declaring.kernel import block_sizes
from autotune_kernels.from_jax import versions
from autotune_kernels.group_sizes import group_sizes
from autotune_kernels.parts import Check

_TILE = 128  # JAX's own default tiling is 128 x 128 x 128
_LEAST_TILE_M, _LARGEST_TILE = 64, 2048

Made = Callable[[], Callable[..., Any]]
"""Imports a package's own function when it is built."""


def _build_gmm(function: Made, problem: Problem, config: Config) -> Callable[..., Any]:
    gmm = function()
    settings = versions.settings(
        gmm,
        preferred_element_type=jnp.dtype(problem.dtype),
        tiling=_tiling(config),
        transpose_rhs=bool(problem.option("transpose_rhs")),
    )
    return partial(gmm, **settings)


def _build_tgmm(function: Made, problem: Problem, config: Config) -> Callable[..., Any]:
    multiply = function()
    settings = versions.settings(
        multiply, preferred_element_type=jnp.dtype(problem.dtype), tiling=_tiling(config)
    )

    def tgmm(lhs: Any, rhs: Any, group_sizes: Any) -> Any:
        """It takes lhs as [k, m] and turns it again: the two cancel, as in JAX's own gradient."""
        return multiply(lhs.swapaxes(0, 1), rhs, group_sizes, **settings)

    return tgmm


def _tiling(config: Config) -> tuple[int, int, int]:
    return config["tile_m"], config["tile_k"], config["tile_n"]


def _ragged_dot(
    problem: Problem, *, contracting: tuple[int, int], weights: bool, convert: Any = None
) -> Callable[..., Any]:
    """XLA's ragged dot of the operands as they are, or converted first.

    ``weights``: rhs has a matrix for each group; else it has rows in the same groups as lhs.
    """
    numbers = lax.RaggedDotDimensionNumbers(
        dot_dimension_numbers=(((contracting[0],), (contracting[1],)), ((), ())),
        lhs_ragged_dimensions=[0],
        rhs_group_dimensions=[0] if weights else [],
    )

    def ragged_dot(lhs: Any, rhs: Any, group_sizes: Any) -> Any:
        if convert is not None:
            lhs, rhs = lhs.astype(convert), rhs.astype(convert)
        out = lax.ragged_dot_general(
            lhs, rhs, group_sizes, numbers, preferred_element_type=jnp.float32
        )
        return out.astype(jnp.dtype(problem.dtype))

    return ragged_dot


def _plain_gmm(problem: Problem, *, convert: Any = None) -> Callable[..., Any]:
    contracting = (1, 2) if problem.option("transpose_rhs") else (1, 1)
    return _ragged_dot(problem, contracting=contracting, weights=True, convert=convert)


def _plain_tgmm(problem: Problem, *, convert: Any = None) -> Callable[..., Any]:
    return _ragged_dot(problem, contracting=(0, 0), weights=False, convert=convert)


def _inputs(problem: Problem, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> list[Array]:
    return [
        Array(name="lhs", shape=lhs, dtype=problem.dtype),
        Array(name="rhs", shape=rhs, dtype=problem.dtype),
        Array(
            name="group_sizes",
            shape=(problem["groups"],),
            dtype="int32",
            values=partial(group_sizes, problem),
        ),
    ]


def _gmm_inputs(problem: Problem) -> list[Array]:
    m, k, n, groups = (problem[dim] for dim in ("m", "k", "n", "groups"))
    weights = (groups, n, k) if problem.option("transpose_rhs") else (groups, k, n)
    return _inputs(problem, (m, k), weights)


def _tgmm_inputs(problem: Problem) -> list[Array]:
    return _inputs(problem, (problem["m"], problem["k"]), (problem["m"], problem["n"]))


def _tile_m(problem: Problem) -> list[int]:
    """The kernels want whole tiles of rows; a tile may hold rows of several groups."""
    sizes = block_sizes(problem["m"], minimum=_LEAST_TILE_M, maximum=_LARGEST_TILE)
    return [size for size in sizes if problem["m"] % size == 0]


def _default(problem: Problem) -> dict[str, int]:
    """JAX's own tiling as far as the problem allows it: it refuses an m that is no multiple."""
    sizes = _tile_m(problem)
    return {
        "tile_m": max((size for size in sizes if size <= _TILE), default=min(sizes, default=_TILE)),
        "tile_k": min(_TILE, problem["k"]),
        "tile_n": min(_TILE, problem["n"]),
    }


def check(problem: Problem) -> str | None:
    if not _tile_m(problem):
        return f"m={problem['m']} must be a multiple of {_LEAST_TILE_M}, or at most {_LARGEST_TILE}"
    return None


def _reduced(problem: Problem) -> Problem:
    return problem.with_dims(groups=min(3, problem["groups"]))


_DIMS = ("m", "k", "n", "groups")
_DTYPES = ("bfloat16", "float32")
_SIZES = Option(name="sizes", choices=("balanced", "skewed"), default="balanced")
_AXES = (
    Axis(name="tile_m", choices=_tile_m, dim="m"),
    block("tile_k", "k", maximum=_LARGEST_TILE),
    block("tile_n", "n", maximum=_LARGEST_TILE),
)
_grouped = partial(
    Kernel, dims=_DIMS, dtypes=_DTYPES, axes=_AXES, default=_default, reduced=_reduced
)


def gmm(name: str, function: Made, doc: str, check: Check = check) -> Kernel:
    """Its rows times weights, as ``function`` has it."""
    return _grouped(
        name=name,
        options=(Option(name="transpose_rhs", choices=(False, True), default=False), _SIZES),
        inputs=_gmm_inputs,
        build=partial(_build_gmm, function),
        reference=lambda problem: _plain_gmm(problem, convert=jnp.float32),
        baseline=_plain_gmm,
        check=check,
        doc=doc,
    )


def tgmm(name: str, function: Made, doc: str, check: Check = check) -> Kernel:
    """The gradient of its weights."""
    return _grouped(
        name=name,
        options=(_SIZES,),
        inputs=_tgmm_inputs,
        build=partial(_build_tgmm, function),
        reference=lambda problem: _plain_tgmm(problem, convert=jnp.float32),
        baseline=_plain_tgmm,
        check=check,
        doc=doc,
    )


GMM = gmm(
    "jax_gmm",
    partial(versions.op, "megablox.gmm", "gmm"),
    "JAX's megablox gmm: rows in groups, each group times its own weights",
)
TGMM = tgmm(
    "jax_tgmm",
    partial(versions.op, "megablox.gmm", "tgmm"),
    "JAX's megablox tgmm: for each group lhs.T @ rhs over its rows, the gradient of weights",
)
