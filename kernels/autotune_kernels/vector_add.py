"""Elementwise sum of two vectors: rank-1 blocks, bound by HBM."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from autotune import Array, Axis, Config, Grid, Kernel, Problem, compiler_params

_SMALLEST, _LARGEST = 1024, 2**18  # elements of a block


def _body(
    x: Any,  # [block_n]
    y: Any,  # [block_n]
    out: Any,  # [block_n]
) -> None:
    out[...] = x[...] + y[...]


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    n, block_n = problem["n"], config["block_n"]
    grid = Grid(config, n=pl.cdiv(n, block_n))
    spec = pl.BlockSpec((block_n,), grid.index_map(lambda n: (n,)))
    call: Callable[..., Any] = pl.pallas_call(
        _body,
        grid=grid.sizes,
        in_specs=[spec, spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((n,), jnp.dtype(problem.dtype)),
        compiler_params=compiler_params(config),
        name="vector_add",
    )
    return call


def _reference(problem: Problem) -> Callable[..., Any]:
    dtype = jnp.dtype(problem.dtype)
    return lambda x, y: (x.astype(jnp.float32) + y.astype(jnp.float32)).astype(dtype)


def _inputs(problem: Problem) -> list[Array]:
    shape = (problem["n"],)
    return [Array(name=name, shape=shape, dtype=problem.dtype) for name in ("x", "y")]


def _block_sizes(problem: Problem) -> list[int]:
    """Powers of two below the length, and the length itself unless it is large.

    A rank-1 array lies in tiles of at most 1024 elements, so a block is whole tiles or everything.
    """
    n = problem["n"]
    sizes = [2**p for p in range(31) if _SMALLEST <= 2**p < min(n, _LARGEST + 1)]
    return [*sizes, n] if n <= _LARGEST else sizes


KERNEL = Kernel(
    name="vector_add",
    dims=("n",),
    dtypes=("bfloat16", "float32"),
    axes=(Axis(name="block_n", choices=_block_sizes, dim="n"),),
    default=lambda problem: {"block_n": min(_SMALLEST, problem["n"])},
    grid=("n",),
    inputs=_inputs,
    build=_build,
    reference=_reference,
    doc="x + y",
)
