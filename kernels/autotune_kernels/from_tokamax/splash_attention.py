"""tokamax's splash attention, which skips what the mask hides: forward, and the gradient of a
training step. The gradient is the forward kernel, which also keeps the log of the row sums, and
the fused backward kernel: two calls, whose times add up. The queries are scaled by the caller."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from autotune import Array, Config, Problem
from autotune_kernels.from_jax import attention
from autotune_kernels.from_jax.attention import splash_visible
from autotune_kernels.parts import dividing, needing, part

_SPLASH = "tokamax._src.ops.experimental.tpu.splash_attention.splash_attention"
_FORWARD = ("block_q", "block_kv", "block_kv_compute")
_BACKWARD = ("block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute")


def _mask(problem: Problem) -> Any:
    masks, shape = part(f"{_SPLASH}_mask"), (problem["seq"], problem["seq"])
    if problem.option("mask") == "local":
        return masks.LocalMask(shape, (int(problem.option("window")), 0), 0)
    return masks.CausalMask(shape) if problem.option("mask") == "causal" else masks.FullMask(shape)


def _inputs(problem: Problem) -> list[Array]:
    seq, dim = problem["seq"], problem["head_dim"]
    heads = {"q": problem["heads"], "k": problem["kv_heads"], "v": problem["kv_heads"]}
    std = {"q": attention.scale_of(dim)}
    return [
        Array(
            name=name,
            shape=(count, seq, dim),
            dtype=problem.dtype,
            row_major=True,
            std=std.get(name, 1.0),
        )
        for name, count in heads.items()
    ]


def _gradient_inputs(problem: Problem) -> list[Array]:
    shape = (problem["heads"], problem["seq"], problem["head_dim"])
    return [*_inputs(problem), Array(name="do", shape=shape, dtype=problem.dtype, row_major=True)]


def _made(problem: Problem, config: Config) -> Callable[..., Any]:
    splash = part(f"{_SPLASH}_kernel")
    blocks = {**dict.fromkeys((*_FORWARD, *_BACKWARD), 128), **dict(config.axes)}
    made: Callable[..., Any] = splash.make_splash_mha_single_device(
        _mask(problem), config=splash.SplashConfig(**blocks)
    )
    return made


def _gradient(problem: Problem, config: Config) -> Callable[..., Any]:
    made = _made(problem, config)
    return lambda q, k, v, do: jax.vjp(made, q, k, v)[1](do)


def _plain_gradient(problem: Problem, *, convert: Any = None) -> Callable[..., Any]:
    """As any flash attention has it: the sums of output times its gradient are those of the output
    that the forward pass has rounded."""

    def gradient(*given: Any) -> Any:
        q, k, v, do = (x if convert is None else x.astype(convert) for x in given)
        out = attention.forward(q, k, v, splash_visible(problem), 1.0).astype(problem.dtype)
        di = jnp.sum(out.astype(jnp.float32) * do.astype(jnp.float32), axis=-1)
        weights = partial(jax.nn.softmax, axis=-1)
        gradients = attention.gradients(q, k, v, do, di, weights, splash_visible(problem), 1.0)
        return [array.astype(problem.dtype) for array in gradients]

    return gradient


_plain = partial(attention.plain, splash_visible, lambda _: 1.0)
_kernel = partial(  # tokamax's own default, too: SplashConfig.get_default
    attention.splash_kernel,
    dims=("head_dim",),
    check=needing("tokamax", "tokamax", attention.splash_check),
    constraint=dividing({f"{whole}_compute": whole for whole in ("block_kv", "block_kv_dkv")}),
    reduced=partial(attention.splash_reduced, 128),
)

FORWARD = _kernel(
    "tokamax_splash_attention",
    blocks=_FORWARD,
    inputs=_inputs,
    build=_made,
    reference=partial(_plain, convert=jnp.float32),
    baseline=_plain,
    doc="tokamax splash attention; heads share keys in groups",
)
GRADIENT = _kernel(
    "tokamax_splash_attention_gradient",
    blocks=(*_FORWARD, *_BACKWARD),
    inputs=_gradient_inputs,
    build=_gradient,
    reference=partial(_plain_gradient, convert=jnp.float32),
    baseline=_plain_gradient,
    doc="gradients of its queries, keys and values: forward with residuals, then fused backward",
)
