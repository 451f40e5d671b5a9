"""vLLM's fused mixture of experts: tokens are sent to the devices that have their experts, so it is
compiled and checked for VMEM, and not estimated."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autotune import Array, Axis, Config, Kernel, Problem
from autotune_kernels.from_tpu_inference import checked
from autotune_kernels.parts import dividing, not_multiple, part

_KERNEL = "tpu_inference.kernels.fused_moe.v1.kernel"
_BLOCKS = ("bt", "bf", "bd1", "bd2", "btc", "bfc", "bd1c", "bd2c")
_DIVIDED = ("model",)


def _inputs(problem: Problem) -> list[Array]:
    tokens, experts, hidden, inner = (
        problem[dim] for dim in ("tokens", "experts", "hidden", "intermediate")
    )
    shapes = {
        "tokens": (tokens, hidden),
        "w1": (experts, 2, hidden, inner),
        "w2": (experts, inner, hidden),
        "gating": (tokens, experts),
    }
    std = {"w1": hidden**-0.5, "w2": inner**-0.5}
    values = {"gating": partial(_distinct, tokens, experts)}
    return [
        Array(
            name=n,
            shape=s,
            dtype=problem.dtype,
            spec=_DIVIDED,
            std=std.get(n, 1.0),
            values=values.get(n),
        )
        for n, s in shapes.items()
    ]


def _distinct(tokens: int, experts: int) -> Any:
    """Which of two experts with equal scores a token goes to is nobody's promise, and the kernel
    rounds scores to bfloat16: these are a sixteenth apart, which is exact in it."""
    rows = np.tile(np.arange(experts), (tokens, 1))
    return (np.random.default_rng(0).permuted(rows, axis=1) - experts // 2) / 16


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    sizes = {name: config[name] for name in _BLOCKS}

    def moe(*arrays: Any) -> Any:
        mesh = jax.sharding.get_abstract_mesh()
        return part(_KERNEL).fused_ep_moe(mesh, *arrays, top_k=problem["top_k"], **sizes)

    return moe


def _reference(problem: Problem) -> Callable[..., Any]:
    return partial(_all_experts, problem["top_k"], lambda result: result)


def _baseline(problem: Problem) -> Callable[..., Any]:
    """What an expert gives is cut to the dtype of the tokens, not rounded, as the kernel does it:
    that is off by twice as much, and always towards zero."""
    is_cut = jnp.dtype(problem.dtype).itemsize == 2
    return partial(_all_experts, problem["top_k"], _cut if is_cut else lambda result: result)


def _cut(result: Any) -> Any:
    upper = jax.lax.bitcast_convert_type(result, jnp.uint32) & jnp.uint32(0xFFFF0000)
    return jax.lax.bitcast_convert_type(upper, jnp.float32)


def _all_experts(
    top_k: int, activation: Callable[[Any], Any], tokens: Any, w1: Any, w2: Any, gating: Any
) -> Any:
    """All experts for all tokens, weighted; of a result what is ``kept``."""
    scores = jax.nn.softmax(gating.astype(jnp.float32))
    best, chosen = jax.lax.top_k(scores, top_k)
    weights = (best[..., None] * jax.nn.one_hot(chosen, scores.shape[-1])).sum(axis=1)
    given = (array.astype(jnp.float32) for array in (tokens, w1[:, 0], w1[:, 1], w2))
    x, gate, up, down = given
    inner = jax.nn.silu(jnp.einsum("th,ehi->tei", x, gate))
    inner = inner * jnp.einsum("th,ehi->tei", x, up)
    results = activation(jnp.einsum("tei,eih->teh", inner, down))
    return jnp.einsum("teh,te->th", results, weights).astype(tokens.dtype)


def _own_choice(problem: Problem, _chip: str) -> dict[str, int]:
    packing = 4 // jnp.dtype(problem.dtype).itemsize
    sizes = part("tpu_inference.kernels.fused_moe.v1.tuned_block_sizes").get_tuned_block_sizes(
        hidden_size=problem["hidden"],
        intermediate_size=problem["intermediate"],
        num_experts=problem["experts"],
        top_k=problem["top_k"],
        t_packing=packing,
        w_packing=packing,
        num_tokens=problem["tokens"],
        ep_size=problem["devices"],
    )
    return dict(zip(_BLOCKS, map(int, sizes), strict=True))


def _choices(name: str) -> Callable[[Problem], list[int]]:
    def choices(problem: Problem) -> list[int]:
        if name.startswith("bt"):
            most = problem["tokens"] // problem["devices"]
            return [size for size in (8, 16, 32, 64, 128, 256) if most % size == 0]
        whole = problem["intermediate" if name.startswith("bf") else "hidden"]
        return [size for size in (256, 512, 1024, 2048) if whole % size == 0]

    return choices


def _check(problem: Problem) -> str | None:
    for dim, least in (("tokens", 8), ("experts", 1)):
        whole = least * problem["devices"]
        if problem[dim] % whole:
            return f"{dim}={problem[dim]} must be a multiple of {whole}: {least} for each device"
    return not_multiple(problem, "hidden", 256) or not_multiple(problem, "intermediate", 256)


KERNEL = Kernel(
    name="vllm_fused_moe",
    dims=("tokens", "experts", "top_k", "hidden", "intermediate", "devices"),
    dtypes=("bfloat16", "float32"),
    axes=tuple(Axis(name=name, choices=_choices(name)) for name in _BLOCKS),
    default=lambda problem: {name: min(_choices(name)(problem)) for name in _BLOCKS},
    default_on=_own_choice,
    inputs=_inputs,
    build=_build,
    reference=_reference,
    baseline=_baseline,
    mesh=lambda problem: {"data": 1, "model": problem["devices"]},
    check=checked(_check),
    constraint=dividing({f"{whole}c": whole for whole in ("bt", "bf", "bd1", "bd2")}),
    reduced=lambda problem: problem.with_dims(
        tokens=min(problem["tokens"], 8 * problem["devices"]),
        experts=min(problem["experts"], 3 * problem["devices"]),
        top_k=min(problem["top_k"], 2),
    ),
    doc="vLLM's fused mixture of experts (tpu-inference fused_moe v1)",
)
