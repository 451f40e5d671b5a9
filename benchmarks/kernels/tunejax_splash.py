"""JAX's splash attention as the test of tune-jax calls it, whose times are published: one kernel
for queries that share keys, under two vmaps (heads of keys, batch of one).

The test asks XLA for the layout of the arguments and puts them there (``arrays=as_read``): then
nothing is copied. Arguments in the layout of their own (``arrays=as_made``) are copied, into VMEM.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from autotune import Array, Axis, Config, Kernel, Option, Problem
from autotune_kernels.from_jax import attention, versions

_BLOCKS = ("block_q", "block_kv", "block_kv_compute")


def _inputs(problem: Problem) -> list[Array]:
    seq, width = problem["seq"], problem["qk_dim"]
    shapes = {
        "q": (1, problem["heads"], seq, width),
        "k": (1, problem["kv_heads"], seq, width),
        "v": (1, problem["kv_heads"], seq, problem["v_dim"]),
    }
    as_read = problem.option("arrays") == "as_read"
    return [
        Array(name=name, shape=shape, dtype=problem.dtype, row_major=as_read)
        for name, shape in shapes.items()
    ]


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    package = partial(versions.op, "splash_attention.splash_attention_kernel")
    masks = partial(versions.op, "splash_attention.splash_attention_mask")
    causal = masks("CausalMask")((problem["seq"], problem["seq"]))
    made = package("make_splash_mqa_single_device")(
        masks("MultiHeadMask")([causal] * problem["kv_heads"]),
        block_sizes=package("BlockSizes")(**dict(config.axes)),
    )

    def attend(q: Any, k: Any, v: Any) -> Any:
        grouped = q.reshape(1, k.shape[1], -1, *q.shape[2:])
        return jax.vmap(jax.vmap(made))(grouped, k, v).reshape(*q.shape[:-1], v.shape[-1])

    return attend


def _reference(problem: Problem) -> Callable[..., Any]:
    visible = attention.causal(problem["seq"], problem["seq"])

    def attend(*given: Any) -> Any:
        q, k, v = (x[0].astype(jnp.float32) for x in given)
        out = attention.forward(q, k, v, visible, 1.0)
        return out[None].astype(jnp.dtype(problem.dtype))

    return attend


KERNEL = Kernel(
    name="tunejax_splash",
    dims=("heads", "kv_heads", "seq", "qk_dim", "v_dim"),
    dtypes=("bfloat16",),
    options=(Option(name="arrays", choices=("as_read", "as_made"), default="as_read"),),
    axes=tuple(
        Axis(
            name=block,
            choices=lambda problem: attention.dividing_blocks(problem["seq"]),
            dim=None if block.endswith("compute") else "seq",
        )
        for block in _BLOCKS
    ),
    default=lambda _: dict.fromkeys(_BLOCKS, 128),
    inputs=_inputs,
    build=_build,
    reference=_reference,
    doc="causal splash attention as the test of tune-jax calls it",
)
