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
import numpy as np

from autotune import Array, Config, Kernel, Problem
from autotune_kernels.from_jax import attention, versions
from autotune_kernels.from_jax.attention import splash_visible

_MODULE = "splash_attention.splash_attention_kernel"
_MASKS = "splash_attention.splash_attention_mask"
_NARROW = 128


def _mask(problem: Problem) -> Any:
    """JAX's description of the mask, for all heads."""
    shape = (problem["seq"], problem["seq"])
    if problem.option("mask") == "local":
        window = (int(problem.option("window")), 0)
        mask = versions.op(_MASKS, "LocalMask")(shape, window, 0)
    else:
        name = "CausalMask" if problem.option("mask") == "causal" else "FullMask"
        mask = versions.op(_MASKS, name)(shape)
    return versions.op(_MASKS, "MultiHeadMask")([mask] * problem["heads"])


def _inputs(problem: Problem) -> list[Array]:
    seq, qk_dim = problem["seq"], problem["qk_dim"]
    shapes = {
        "q": (problem["heads"], seq, qk_dim),
        "k": (problem["kv_heads"], seq, qk_dim),
        "v": (problem["kv_heads"], seq, problem["v_dim"]),
    }
    std = {"q": attention.scale_of(qk_dim)}
    return [
        Array(name=n, shape=shapes[n], dtype=problem.dtype, row_major=True, std=std.get(n, 1.0))
        for n in shapes
    ]


def _backward_inputs(problem: Problem) -> list[Array]:
    """q, k, v, the log of the row sums of the forward pass, and the output's gradient."""
    rows = (problem["heads"], problem["seq"])
    values = partial(_logsumexp, problem)
    do = (*rows, problem["v_dim"])
    return [
        *_inputs(problem),
        Array(name="logsumexp", shape=rows, dtype="float32", values=values),
        Array(name="do", shape=do, dtype=problem.dtype, row_major=True),
        Array(name="di", shape=rows, dtype="float32"),
    ]


def _logsumexp(problem: Problem) -> Any:
    """What normal scores give: the log of the number of keys that a row sees, and a half."""
    seen = np.minimum(np.arange(problem["seq"]) + 1, _seen(problem)) + 0.0
    if problem.option("mask") == "full":
        seen[:] = problem["seq"]
    return np.broadcast_to(np.log(seen) + 0.5, (problem["heads"], problem["seq"])).astype("f4")


def _seen(problem: Problem) -> int:
    """The most keys that a row sees."""
    is_local = problem.option("mask") == "local"
    return int(problem.option("window")) + 1 if is_local else problem["seq"]


def _made(problem: Problem, **sizes: Any) -> Any:
    """JAX's splash kernel object with its block lists: scalars that steer the kernel."""
    blocks = versions.op(_MODULE, "BlockSizes")
    make = versions.op(_MODULE, "make_splash_mha_single_device")
    forward = dict.fromkeys(("block_q", "block_kv", "block_kv_compute"), 128)
    return make(_mask(problem), block_sizes=blocks(**{**forward, **sizes}))


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    made: Callable[..., Any] = _made(problem, **dict(config.axes))
    return made


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
        attn_logits_soft_cap=None,
        is_mqa=False,
        interpret=False,
        segment_ids=None,
        sinks=None,
    )

    def gradient(q: Any, k: Any, v: Any, logsumexp: Any, do: Any, di: Any) -> Any:
        gradients = function(q=q, k=k, v=v, logsumexp=logsumexp, do=do, di=di, **settings)
        gradients = (gradients,) if name == "dq" else gradients
        return [array for array in gradients if array is not None]

    return gradient


def _plain_backward(kind: str, problem: Problem, *, convert: Any = None) -> Callable[..., Any]:
    dtype = jnp.dtype(problem.dtype)

    def gradient(q: Any, k: Any, v: Any, logsumexp: Any, do: Any, di: Any) -> Any:
        q, k, v, do = (x if convert is None else x.astype(convert) for x in (q, k, v, do))

        def weights(scores: Any) -> Any:
            return jnp.exp(scores - attention.grouped(logsumexp[..., None], k))

        dq, dk, dv = attention.gradients(q, k, v, do, di, weights, splash_visible(problem), 1.0)
        expected = {"dq": [dq], "dkv": [dk, dv], "fused": [dq, dk, dv]}[kind]
        return [array.astype(dtype) for array in expected]

    return gradient


_BLOCKS = {
    "forward": ("block_q", "block_kv", "block_kv_compute"),
    "dkv": ("block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute"),
    "dq": ("block_q_dq", "block_kv_dq"),
}


_kernel = partial(
    attention.splash_kernel,
    dims=("qk_dim", "v_dim"),
    check=attention.splash_check,
    reduced=partial(attention.splash_reduced, _NARROW),
)
_plain = partial(attention.plain, splash_visible, lambda _: 1.0)


def _backward_kernel(name: str, kind: str, blocks: tuple[str, ...], doc: str) -> Kernel:
    return _kernel(
        name,
        blocks=blocks,
        inputs=_backward_inputs,
        build=partial(_backward, kind),
        reference=partial(_plain_backward, kind, convert=jnp.float32),
        baseline=partial(_plain_backward, kind),
        doc=doc,
    )


FORWARD = _kernel(
    "jax_splash_attention",
    blocks=_BLOCKS["forward"],
    inputs=_inputs,
    build=_build,
    reference=partial(_plain, convert=jnp.float32),
    baseline=_plain,
    doc="jax.experimental.pallas.ops.tpu.splash_attention; heads share keys in groups",
)
DKV = _backward_kernel(
    "jax_splash_attention_dkv", "dkv", _BLOCKS["dkv"], "gradients of its keys and values"
)
DQ = _backward_kernel("jax_splash_attention_dq", "dq", _BLOCKS["dq"], "gradient of its queries")
FUSED = _backward_kernel(
    "jax_splash_attention_fused", "fused", _BLOCKS["dkv"], "all its gradients in one kernel"
)
