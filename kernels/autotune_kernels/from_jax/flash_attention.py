"""JAX's flash attention: the forward kernel, and the two that its backward pass consists of.

The backward kernels are declared apart, each with its own block sizes: their times add up, and
nothing of one depends on the blocks of the other. They are called as JAX's own gradient calls
them, with the statistics of a forward pass.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from autotune import Array, Axis, Config, Kernel, Option, Problem, block
from autotune_kernels.from_jax import attention, versions
from autotune_kernels.parts import not_multiple

_MODULE = "flash_attention"
_FORWARD_DEFAULT = {"block_q": 128, "block_k_major": 128, "block_k": 128, "block_b": 1}
_SPREAD = 0.05  # of the statistics from row to row


def _visible(problem: Problem) -> Any:
    lengths = (problem["q_len"], problem["kv_len"])
    return attention.causal(*lengths) if problem.option("causal") else None


def _scale(problem: Problem) -> float:
    return attention.scale_of(problem["head_dim"])


def _inputs(problem: Problem) -> list[Array]:
    lead, head_dim = (problem["batch"], problem["heads"]), problem["head_dim"]
    kv = (*lead, problem["kv_len"], head_dim)
    shapes = {"q": (*lead, problem["q_len"], head_dim), "k": kv, "v": kv}
    return [Array(name=name, shape=shape, dtype=problem.dtype) for name, shape in shapes.items()]


def _backward_inputs(problem: Problem) -> list[Array]:
    """q, k, v, the row sums l and row maxima m of the forward pass, and the output's gradient."""
    rows = (problem["batch"], problem["heads"], problem["q_len"])
    typical = {"l": problem["kv_len"] / np.exp(2.0), "m": 2.5}  # of normal scores
    drawn = [
        Array(name=name, shape=rows, dtype="float32", values=partial(_near, value, rows))
        for name, value in typical.items()
    ]
    return [
        *_inputs(problem),
        *drawn,
        Array(name="do", shape=(*rows, problem["head_dim"]), dtype=problem.dtype),
        Array(name="di", shape=rows, dtype="float32"),
    ]


def _near(value: float, shape: tuple[int, ...]) -> Any:
    spread = np.random.default_rng(0).normal(1.0, _SPREAD, shape)
    return (value * spread).astype(np.float32)


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    sizes = versions.op(_MODULE, "BlockSizes")(**dict(config.axes))
    function = versions.op(_MODULE, "flash_attention")
    return partial(
        function, causal=problem.option("causal"), sm_scale=_scale(problem), block_sizes=sizes
    )


def _backward(
    name: str, blocks: dict[str, str], problem: Problem, config: Config
) -> Callable[..., Any]:
    """JAX's function called ``name``; ``blocks``: its parameters by axis. ``BlockSizes`` refuses
    what that function takes and computes wrongly: an inner block larger than the outer one."""
    versions.op(_MODULE, "BlockSizes")(**_FORWARD_DEFAULT, **dict(config.axes))
    function = versions.op(_MODULE, name)
    settings = versions.settings(
        function,
        **{parameter: config[axis] for axis, parameter in blocks.items()},
        sm_scale=_scale(problem),
        causal=problem.option("causal"),
        debug=False,
        mask_value=versions.op(_MODULE, "DEFAULT_MASK_VALUE"),
    )

    def gradient(q: Any, k: Any, v: Any, l: Any, m: Any, do: Any, di: Any) -> Any:  # noqa: E741 (JAX's name)
        gradients = function(q, k, v, None, None, l, m, do, di, **settings)
        return [array for array in gradients if array is not None]

    return gradient


_plain = partial(attention.plain, _visible, _scale)


def _plain_backward(
    names: tuple[str, ...], problem: Problem, *, convert: Any = None
) -> Callable[..., Any]:
    """The gradients called ``names``."""
    dtype = jnp.dtype(problem.dtype)

    def gradient(q: Any, k: Any, v: Any, l: Any, m: Any, do: Any, di: Any) -> Any:  # noqa: E741 (JAX's name)
        q, k, v, do = (x if convert is None else x.astype(convert) for x in (q, k, v, do))

        def weights(scores: Any) -> Any:
            top, total = (attention.grouped(x[..., None], k) for x in (m, l))
            return jnp.exp(scores - top) / total

        gradients = attention.gradients(
            q, k, v, do, di, weights, _visible(problem), _scale(problem)
        )
        by_name = dict(zip(("dq", "dk", "dv"), gradients, strict=True))
        return [by_name[name].astype(dtype) for name in names]

    return gradient


def _reduced(problem: Problem) -> Problem:
    return problem.with_dims(batch=min(2, problem["batch"]), heads=min(2, problem["heads"]))


def _check(problem: Problem) -> str | None:
    """Where JAX refuses its own default. Rows of queries may end inside a block."""
    if problem["q_len"] < 128:
        return f"q_len={problem['q_len']} must be at least 128"
    return not_multiple(problem, "kv_len", 128)


def _check_backward(problem: Problem) -> str | None:
    return not_multiple(problem, "q_len", 128) or not_multiple(problem, "kv_len", 128)


def _axis(name: str, dim: str, *, cuts: bool) -> Axis:
    """A block size that divides a length; ``cuts``: the grid runs over it, not a loop inside."""
    return Axis(
        name=name,
        choices=lambda problem: attention.dividing_blocks(problem[dim]),
        dim=dim if cuts else None,
    )


def _kernel(name: str, axes: tuple[Axis, ...], **parts: Any) -> Kernel:
    """JAX's default for every block size is 128, and 1 for the batch."""
    defaults = {axis.name: _FORWARD_DEFAULT.get(axis.name, 128) for axis in axes}
    return Kernel(
        name=name,
        dims=("batch", "heads", "q_len", "kv_len", "head_dim"),
        alike=(("kv_len", "q_len"),),
        dtypes=("bfloat16", "float32"),
        options=(Option(name="causal", choices=(False, True), default=False),),
        axes=axes,
        default=lambda _: defaults,
        reduced=_reduced,
        **parts,
    )


_DKV_BLOCKS = {
    "block_q_major_dkv": "block_q_major",
    "block_q_dkv": "block_q",
    "block_k_major_dkv": "block_k_major",
    "block_k_dkv": "block_k",
}
_DQ_BLOCKS = {
    "block_q_dq": "block_q_major",
    "block_k_major_dq": "block_k_major",
    "block_k_dq": "block_k",
}
_DKV, _DQ = ("dk", "dv"), ("dq",)

FORWARD = _kernel(
    "jax_flash_attention",
    (
        block("block_q", "q_len", maximum=2048),
        _axis("block_k_major", "kv_len", cuts=True),
        _axis("block_k", "kv_len", cuts=False),
        Axis(
            name="block_b",
            choices=lambda p: [b for b in (1, 2, 4) if p["batch"] % b == 0],
            dim="batch",
        ),
    ),
    inputs=_inputs,
    build=_build,
    reference=partial(_plain, convert=jnp.float32),
    baseline=_plain,
    check=_check,
    doc="jax.experimental.pallas.ops.tpu.flash_attention, scaled by 1/sqrt(head_dim)",
)

DKV = _kernel(
    "jax_flash_attention_dkv",
    (
        _axis("block_q_major_dkv", "q_len", cuts=True),
        _axis("block_q_dkv", "q_len", cuts=False),
        _axis("block_k_major_dkv", "kv_len", cuts=True),
        _axis("block_k_dkv", "kv_len", cuts=False),
    ),
    inputs=_backward_inputs,
    build=partial(_backward, "_flash_attention_bwd_dkv", _DKV_BLOCKS),
    reference=partial(_plain_backward, _DKV, convert=jnp.float32),
    baseline=partial(_plain_backward, _DKV),
    check=_check_backward,
    doc="gradients of keys and values of jax.experimental.pallas.ops.tpu.flash_attention",
)

DQ = _kernel(
    "jax_flash_attention_dq",
    (
        _axis("block_q_dq", "q_len", cuts=True),
        _axis("block_k_major_dq", "kv_len", cuts=True),
        _axis("block_k_dq", "kv_len", cuts=False),
    ),
    inputs=_backward_inputs,
    build=partial(_backward, "_flash_attention_bwd_dq", _DQ_BLOCKS),
    reference=partial(_plain_backward, _DQ, convert=jnp.float32),
    baseline=partial(_plain_backward, _DQ),
    check=_check_backward,
    doc="gradient of the queries of jax.experimental.pallas.ops.tpu.flash_attention",
)
