"""vLLM's quantized matmul: activations are quantized in the kernel, weights and their scales for
each output feature come so."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp

from autotune import Array, Axis, Config, Kernel, Option, Problem
from autotune.declaring.kernel import block_sizes
from autotune_kernels.from_tpu_inference import checked
from autotune_kernels.parts import part, telling, told

_PACKAGE = "tpu_inference.kernels.quantized_matmul"
_BLOCKS = {"batch_block_size": "m", "out_block_size": "n", "in_block_size": "k"}


def _inputs(problem: Problem) -> list[Array]:
    m, k, n = (problem[dim] for dim in "mkn")
    return [
        Array(name="x", shape=(m, k), dtype=problem.dtype),
        Array(name="w", shape=(n, k), dtype=str(problem.option("weights"))),
        Array(name="scale", shape=(n,), dtype="float32"),
    ]


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    tuned = part(f"{_PACKAGE}.tuned_block_sizes")
    function = part(f"{_PACKAGE}.kernel").quantized_matmul_kernel
    value = tuned.TunedValue(*(config[name] for name in _BLOCKS))
    quantized = jnp.dtype(str(problem.option("weights")))
    return telling(
        lambda x, w, scale: function(x, w, scale, x_q_dtype=quantized, tuned_value=value), tuned
    )


def _reference(problem: Problem) -> Callable[..., Any]:
    """Row by row quantized as the kernel does it: the largest value of a row becomes the largest
    of the type."""

    def matmul(x: Any, w: Any, scale: Any) -> Any:
        util = part(f"{_PACKAGE}.util")
        top = jnp.max(jnp.abs(x), axis=-1, keepdims=False)[None]
        q, x_scale = util.quantize_array(x, top, w.dtype)
        exact = jnp.int32 if jnp.issubdtype(w.dtype, jnp.integer) else jnp.float32
        out = jnp.dot(q, w.T, preferred_element_type=exact)
        return (out * scale[None] * x_scale).astype(problem.dtype)

    return matmul


def _tuned(problem: Problem, chip: str) -> dict[str, int]:
    """Its own table; 128 each for what is not in it."""
    module, weights = part(f"{_PACKAGE}.tuned_block_sizes"), str(problem.option("weights"))
    with told(module, chip=chip):
        sizes = module.get_tuned_block_sizes(
            problem["m"], problem["n"], problem["k"], weights, weights
        )
    return {name: getattr(sizes, name) for name in _BLOCKS}


def _sizes(dim: str, problem: Problem) -> list[int]:
    return block_sizes(problem[dim], minimum=128, maximum=4096)


KERNEL = Kernel(
    name="vllm_quantized_matmul",
    dims=("m", "k", "n"),
    dtypes=("bfloat16",),
    options=(Option(name="weights", choices=("int8", "float8_e4m3fn"), default="int8"),),
    axes=tuple(
        Axis(name=name, choices=partial(_sizes, dim), dim=dim) for name, dim in _BLOCKS.items()
    ),
    default=lambda problem: {name: min(128, problem[dim]) for name, dim in _BLOCKS.items()},
    default_on=_tuned,
    inputs=_inputs,
    build=_build,
    reference=_reference,
    check=checked(),
    doc="vLLM's quantized matmul (tpu-inference): weights and activations in 8 bits",
)
