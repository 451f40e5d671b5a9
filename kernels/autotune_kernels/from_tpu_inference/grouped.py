"""vLLM's grouped matrix product (its megablox): the tokens of each expert times its weights."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from autotune import Array, Axis, Config, Kernel, Problem, block
from autotune_kernels.from_tpu_inference import checked
from autotune_kernels.group_sizes import equal_groups
from autotune_kernels.parts import arrays, not_multiple, part

_PACKAGE = "tpu_inference.kernels.megablox"


def _inputs(problem: Problem) -> list[Array]:
    m, k, n, groups = (problem[dim] for dim in ("m", "k", "n", "groups"))
    return [
        *arrays(problem, lhs=(m, k), rhs=(groups, k, n)),
        Array(name="sizes", shape=(groups,), dtype="int32", values=partial(equal_groups, problem)),
    ]


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    return partial(
        part(f"{_PACKAGE}.gmm").gmm,
        preferred_element_type=jnp.dtype(problem.dtype),
        tiling=(config["tile_m"], config["tile_k"], config["tile_n"]),
    )


def _reference(problem: Problem) -> Callable[..., Any]:
    def gmm(lhs: Any, rhs: Any, sizes: Any) -> Any:
        out = lax.ragged_dot(lhs, rhs, sizes, preferred_element_type=jnp.float32)
        return out.astype(jnp.dtype(problem.dtype))

    return gmm


def _tuned(problem: Problem, _chip: str) -> dict[str, int]:
    """Its own table, or the formula that it has for all else."""
    m, k, n, groups = (problem[dim] for dim in ("m", "k", "n", "groups"))
    function = part(f"{_PACKAGE}.tuned_block_sizes").get_tuned_block_sizes
    sizes = function(m, k, n, groups, groups, problem.dtype, problem.dtype, k)
    return dict(zip(("tile_m", "tile_k", "tile_n"), sizes, strict=True))


def _tile_m(problem: Problem) -> list[int]:
    """The kernel wants whole tiles of rows."""
    return [size for size in (8, 64, 128, 256, 512, 1024) if problem["m"] % size == 0]


KERNEL = Kernel(
    name="vllm_gmm",
    dims=("m", "k", "n", "groups"),
    dtypes=("bfloat16", "float32"),
    axes=(
        Axis(name="tile_m", choices=_tile_m, dim="m"),
        block("tile_k", "k"),
        block("tile_n", "n"),
    ),
    default=lambda problem: {
        "tile_m": max((s for s in _tile_m(problem) if s <= 128), default=8),
        "tile_k": min(128, problem["k"]),
        "tile_n": min(128, problem["n"]),
    },
    default_on=_tuned,
    inputs=_inputs,
    build=_build,
    reference=_reference,
    check=checked(lambda problem: not_multiple(problem, "m", 8)),
    reduced=lambda problem: problem.with_dims(groups=min(3, problem["groups"])),
    doc="vLLM's grouped matrix product (tpu-inference megablox gmm)",
)
