"""JAX's splash attention, which skips what the mask hides: forward, and its backward kernels.

The backward pass is either DKV and DQ, whose times add up, or FUSED, which gives all gradients at
once (XLA then adds up its dq over the blocks of keys; that is not in the time of the kernel). The
layout options of ``BlockSizes`` are no axes here: another layout needs a transposition outside
the kernel. The queries are scaled by the caller, as JAX asks for.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp

from autotune import Config, Kernel, Problem
from autotune_kernels.from_jax import splash, versions

_MODULE = "splash_attention.splash_attention_kernel"


def _mask(problem: Problem) -> Any:
    """JAX's description of the mask, for all heads."""
    masks = versions.op("splash_attention", "splash_attention_mask")
    return masks.MultiHeadMask([splash.described(problem, masks)] * problem["heads"])


def _made(problem: Problem, **sizes: Any) -> Any:
    """JAX's splash kernel object with its block lists: scalars that steer the kernel."""
    blocks = versions.op(_MODULE, "BlockSizes")
    make = versions.op(_MODULE, "make_splash_mha_single_device")
    forward = dict.fromkeys(("block_q", "block_kv", "block_kv_compute"), 128)
    return make(
        _mask(problem),
        block_sizes=blocks(**{**forward, **sizes}),
        save_residuals=bool(dict(problem.options).get("residuals")),
        attn_logits_soft_cap=splash.soft_cap(problem),
    )


def _segments(problem: Problem, given: tuple[Any, ...]) -> dict[str, Any]:
    """``segment_ids``, and ``sinks`` where there are any: some releases have none."""
    more = splash.by_name(problem, given)
    ids = (more["q_segments"], more["kv_segments"])
    sinks = {} if more["sinks"] is None else {"sinks": more["sinks"]}
    segments = None if ids[0] is None else versions.op(_MODULE, "SegmentIds")(*ids)
    return {"segment_ids": segments, **sinks}


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    made = _made(problem, **dict(config.axes))

    def attend(q: Any, k: Any, v: Any, *given: Any) -> Any:
        out = made(q, k, v, **_segments(problem, given))
        return (out[0], *out[1]) if problem.option("residuals") else out

    return attend


def _backward(kind: str, problem: Problem, config: Config) -> Callable[..., Any]:
    """``kind``: dkv, dq or fused. The blocks of the other kernels do not matter."""
    sizes = dict.fromkeys(_BLOCKS["dkv"] + _BLOCKS["dq"], 128)
    if kind == "fused":
        sizes = dict.fromkeys(_BLOCKS["dkv"], 128) | {"use_fused_bwd_kernel": True}
    made = _made(problem, **{**sizes, **dict(config.axes)})
    name = "dq" if kind == "dq" else "dkv"
    function = versions.op(_MODULE, f"_splash_attention_bwd_{name}")
    blocks = dict(zip(("bq", "bkv", "bkv_compute"), _BLOCKS[name], strict=False))
    settings = versions.settings(
        function,
        **{parameter: config[axis] for parameter, axis in blocks.items()},
        **({"use_fused_bwd_kernel": kind == "fused"} if name == "dkv" else {}),
        **{f"{n}_layout": getattr(made.kwargs["block_sizes"], f"{n}_layout") for n in "qkv"},
        mask_info=made.dq_mask_info if name == "dq" else made.dkv_mask_info,
        mask_function=made.kwargs["mask_function"],
        mask_value=made.kwargs["mask_value"],
        attn_logits_soft_cap=splash.soft_cap(problem),
        is_mqa=False,
        interpret=False,
        sinks=None,
    )

    def gradient(*given: Any) -> Any:
        named = dict(zip(("q", "k", "v", "logsumexp", "do", "di"), given, strict=False))
        gradients = function(**named, **{**settings, **_segments(problem, given[6:])})
        gradients = (gradients,) if name == "dq" else gradients
        return [array for array in gradients if array is not None]

    return gradient


def _plain_backward(kind: str, problem: Problem, *, convert: Any = None) -> Callable[..., Any]:
    gradients = splash.plain_gradients(problem, convert=convert)
    wanted = {"dq": slice(1), "dkv": slice(1, 3), "fused": slice(3)}[kind]
    return lambda *given: gradients(*given)[wanted]


_BLOCKS = {
    "forward": ("block_q", "block_kv", "block_kv_compute"),
    "dkv": ("block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute"),
    "dq": ("block_q_dq", "block_kv_dq"),
}


_kernel = partial(
    splash.kernel, dims=("qk_dim", "v_dim"), check=splash.check, reduced=splash.reduced
)


def _backward_kernel(name: str, kind: str, blocks: tuple[str, ...], doc: str) -> Kernel:
    return _kernel(
        name,
        blocks=blocks,
        options=(splash.flag("sinks"),),
        inputs=splash.backward_inputs,
        build=partial(_backward, kind),
        reference=partial(_plain_backward, kind, convert=jnp.float32),
        baseline=partial(_plain_backward, kind),
        doc=doc,
    )


FORWARD = _kernel(
    "jax_splash_attention",
    blocks=_BLOCKS["forward"],
    options=(splash.flag("sinks"), splash.flag("residuals")),
    inputs=splash.forward_inputs,
    build=_build,
    reference=partial(splash.plain, convert=jnp.float32),
    baseline=splash.plain,
    doc="jax.experimental.pallas.ops.tpu.splash_attention; heads share keys in groups",
)
DKV = _backward_kernel(
    "jax_splash_attention_dkv", "dkv", _BLOCKS["dkv"], "gradients of its keys and values"
)
DQ = _backward_kernel("jax_splash_attention_dq", "dq", _BLOCKS["dq"], "gradient of its queries")
FUSED = _backward_kernel(
    "jax_splash_attention_fused", "fused", _BLOCKS["dkv"], "all its gradients in one kernel"
)
