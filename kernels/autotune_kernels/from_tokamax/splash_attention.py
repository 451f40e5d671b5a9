"""tokamax's splash attention, which skips what the mask hides: forward, and the gradient of a
training step. The gradient is the forward kernel, which also keeps the log of the row sums, and
the fused backward kernel: two calls, whose times add up. The queries are scaled by the caller.

``scheduler``: its experimental one, which a model has for all its calls or for none;
``wide_lists``: lists of blocks are of int32, as ``tokamax.dot_product_attention`` has them.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from autotune import Array, Config, Problem
from autotune_kernels.from_jax import splash
from autotune_kernels.parts import dividing, needing, part

_SPLASH = "tokamax._src.ops.experimental.tpu.splash_attention.splash_attention"
_LOG2_E = 1 / math.log(2)
_FORWARD = ("block_q", "block_kv", "block_kv_compute")
_BACKWARD = ("block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute")


def _gradient_inputs(problem: Problem) -> list[Array]:
    q, k, v, *extras = splash.forward_inputs(problem)
    return [q, k, v, splash.slope(problem), *extras]


def _kernel_object(problem: Problem, config: Config, **settings: Any) -> Any:
    kernel = part(f"{_SPLASH}_kernel")
    blocks = {**dict.fromkeys((*_FORWARD, *_BACKWARD), 128), **dict(config.axes)}
    return kernel.make_splash_mha_single_device(
        splash.described(problem, part(f"{_SPLASH}_mask")),
        config=kernel.SplashConfig(
            **blocks,
            attn_logits_soft_cap=splash.soft_cap(problem),
            use_experimental_scheduler=bool(dict(problem.options).get("scheduler")),
        ),
        downcast_smem_data=not dict(problem.options).get("wide_lists"),
        **settings,
    )


def _segments(problem: Problem, given: Sequence[Any]) -> Any:
    more = splash.by_name(problem, given)
    if more["q_segments"] is None:
        return None
    return part(f"{_SPLASH}_kernel").SegmentIds(more["q_segments"], more["kv_segments"])


def _made(problem: Problem, config: Config) -> Callable[..., Any]:
    residuals = bool(dict(problem.options).get("residuals"))
    made = _kernel_object(problem, config, save_residuals=residuals)

    def attend(q: Any, k: Any, v: Any, *given: Any) -> Any:
        sinks = splash.by_name(problem, given)["sinks"]
        out = made(q, k, v, _segments(problem, given), sinks)
        return (out[0], out[1]["logsumexp"]) if residuals else out

    return attend


def _gradient(problem: Problem, config: Config) -> Callable[..., Any]:
    made = _made(problem, config)

    def gradient(q: Any, k: Any, v: Any, do: Any, *given: Any) -> Any:
        return jax.vjp(lambda *qkv: made(*qkv, *given), q, k, v)[1](do)

    return gradient


def _backward(problem: Problem, config: Config) -> Callable[..., Any]:
    """The fused backward kernel alone. Its logits are of base 2, and so is their logsumexp."""
    kernel = part(f"{_SPLASH}_kernel")
    made = _kernel_object(problem, config)
    settings = {
        name: made.kwargs[name]
        for name in ("is_mqa", "mask_value", "mask_function", "config", "dkv_mask_sparsity")
    }
    tiles = dict(zip(("bq", "bkv", "bkv_compute"), dict(config.axes).values(), strict=True))

    def gradients(q: Any, k: Any, v: Any, logsumexp: Any, do: Any, di: Any, *given: Any) -> Any:
        return kernel._splash_attention_bwd_dkv(
            q,
            k,
            v,
            _segments(problem, given),
            logsumexp * _LOG2_E,
            do,
            di,
            **tiles,
            **settings,
            mask_info=made.dkv_mask_info,
        )

    return gradients


def _plain_backward(problem: Problem, *, convert: Any = None) -> Callable[..., Any]:
    """With the logits of its kernel, which rounds log2(e), and the queries times that: base 2."""

    def scaled(q: Any) -> Any:
        log2_e = jnp.asarray(_LOG2_E, problem.dtype).astype(q.dtype)
        return (q * log2_e).astype(problem.dtype).astype(q.dtype) / _LOG2_E

    return splash.plain_gradients(problem, convert=convert, scaled=scaled)


def _check_gradient(problem: Problem) -> str | None:
    if problem.option("segments"):
        return "with segments its kernels are tuned one by one: forward with residuals, backward"
    return splash.check(problem)


def _plain_gradient(problem: Problem, *, convert: Any = None) -> Callable[..., Any]:
    """As any flash attention has it: the sums of output times its gradient are those of the output
    that the forward pass has rounded."""
    attend = splash.plain(problem, convert=convert, residuals=True)
    back = splash.plain_gradients(problem, convert=convert)

    def gradient(q: Any, k: Any, v: Any, do: Any, *given: Any) -> Any:
        out, rows = attend(q, k, v, *given)
        di = jnp.sum(out.astype(jnp.float32) * do.astype(jnp.float32), axis=-1)
        return back(q, k, v, rows, do, di, *given)

    return gradient


_kernel = partial(
    splash.kernel,
    dims=("head_dim",),
    constraint=dividing({f"{whole}_compute": whole for whole in ("block_kv", "block_kv_dkv")}),
    reduced=splash.reduced,
)

FORWARD = _kernel(
    "tokamax_splash_attention",
    blocks=_FORWARD,
    check=needing("tokamax", "tokamax", splash.check),
    options=(*map(splash.flag, ("scheduler", "wide_lists", "sinks", "residuals")),),
    inputs=splash.forward_inputs,
    build=_made,
    reference=partial(splash.plain, convert=jnp.float32),
    baseline=splash.plain,
    doc="tokamax splash attention; heads share keys in groups",
)
BACKWARD = _kernel(
    "tokamax_splash_attention_backward",
    blocks=_BACKWARD,
    check=needing("tokamax", "tokamax", splash.check),
    options=(*map(splash.flag, ("scheduler", "wide_lists")),),
    inputs=splash.backward_inputs,
    build=_backward,
    reference=partial(_plain_backward, convert=jnp.float32),
    baseline=splash.plain_gradients,
    doc="its fused backward kernel alone",
)
GRADIENT = _kernel(
    "tokamax_splash_attention_gradient",
    blocks=(*_FORWARD, *_BACKWARD),
    check=needing("tokamax", "tokamax", _check_gradient),
    options=(),
    inputs=_gradient_inputs,
    build=_gradient,
    reference=partial(_plain_gradient, convert=jnp.float32),
    baseline=_plain_gradient,
    doc="gradients of its queries, keys and values: forward with residuals, then fused backward",
)
