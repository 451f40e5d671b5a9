"""A product of float16 matrices, for the times of plain XLA that others measured on TPU v4. The TPU
has no such type; the kernel is never built, only its reference."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from autotune import Array, Axis, Config, Kernel, Problem


def _inputs(problem: Problem) -> list[Array]:
    m, k, n = (problem[dim] for dim in ("m", "k", "n"))
    return [
        Array(name="x", shape=(m, k), dtype="float16"),
        Array(name="y", shape=(k, n), dtype="float16"),
    ]


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    raise NotImplementedError


KERNEL = Kernel(
    name="float16_matmul",
    dims=("m", "k", "n"),
    dtypes=("float16",),
    axes=(Axis(name="block_m", choices=lambda _: (128,)),),
    default=lambda _: {"block_m": 128},
    inputs=_inputs,
    build=_build,
    reference=lambda _: jnp.matmul,
)
