"""vLLM's flash attention, for encoders and vision towers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp

from autotune import Array, Config, Kernel, Option, Problem, block
from autotune_kernels.from_tpu_inference import checked
from autotune_kernels.parts import dividing, not_multiple, part

_KERNEL = "tpu_inference.kernels.flash_attention.kernel"
_BLOCKS = ("block_q", "block_k_major", "block_k")


def _shape(problem: Problem) -> tuple[int, ...]:
    return tuple(problem[dim] for dim in ("batch", "heads", "seq", "head_dim"))


def _scale(problem: Problem) -> float:
    return float(problem["head_dim"] ** -0.5)


def _is_causal(problem: Problem) -> bool:
    return problem.option("causal") == "true"


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    module = part(_KERNEL)
    sizes = module.BlockSizes(block_b=1, **{name: config[name] for name in _BLOCKS})
    return partial(
        module.flash_attention,
        causal=_is_causal(problem),
        sm_scale=_scale(problem),
        block_sizes=sizes,
    )


def _plain(problem: Problem, dtype: Any = None) -> Callable[..., Any]:
    def attend(*arrays: Any) -> Any:
        given = [array.astype(dtype or array.dtype) for array in arrays]
        function = part(_KERNEL).mha_reference_no_custom_vjp
        output = function(*given, causal=_is_causal(problem), sm_scale=_scale(problem))
        return output.astype(arrays[0].dtype)

    return attend


def _own_choice(problem: Problem, _chip: str) -> dict[str, int]:
    """Its own table; for all else blocks of 128, and all keys in one step where they fit."""
    from jax.experimental.pallas import tpu as pltpu

    module, tuned = part(_KERNEL), part("tpu_inference.kernels.flash_attention.tuned_params")
    batch, heads, seq, dim = _shape(problem)
    key = tuned.TuningKey(batch, heads, seq, seq, dim, problem.dtype, problem.dtype)
    sizes = tuned.get_tuned_params(key)
    if sizes is None:
        sizes, dtype = module.BlockSizes(128, seq, seq, 1), jnp.dtype(problem.dtype)
        used = module.calculate_vmem_usage_bytes(sizes, dtype, dtype, dim, seq, None, None)
        if used > 0.9 * pltpu.get_tpu_info().vmem_capacity_bytes:
            sizes = module.BlockSizes(128, 128, 128, 1)
    return {name: int(getattr(sizes, name)) for name in _BLOCKS}


KERNEL = Kernel(
    name="vllm_flash_attention",
    dims=("batch", "heads", "seq", "head_dim"),
    dtypes=("bfloat16", "float32"),
    options=(Option(name="causal", choices=("false", "true"), default="false"),),
    axes=tuple(block(name, "seq", maximum=4096) for name in _BLOCKS),
    default=lambda _: dict.fromkeys(_BLOCKS, 128),
    default_on=_own_choice,
    inputs=lambda problem: [
        Array(name=name, shape=_shape(problem), dtype=problem.dtype, row_major=True)
        for name in "qkv"
    ],
    build=_build,
    reference=partial(_plain, dtype=jnp.float32),
    baseline=_plain,
    check=checked(lambda problem: not_multiple(problem, "seq", 128)),
    constraint=dividing({"block_k": "block_k_major"}),
    reduced=lambda problem: problem.with_dims(batch=1, heads=min(2, problem["heads"])),
    doc="vLLM's flash attention (tpu-inference)",
)
