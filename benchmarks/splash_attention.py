"""JAX's own splash attention (forward), declared for the search."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from autotune.config import Config
from autotune.kernel import Array, Axis, Kernel, block_sizes
from autotune.problem import Option, Problem


def _inputs(problem: Problem) -> list[Array]:
    seq, kv_heads = problem["seq"], problem["kv_heads"]
    shapes = {
        "q": (problem["heads"], seq, problem["qk_dim"]),
        "k": (kv_heads, seq, problem["qk_dim"]),
        "v": (kv_heads, seq, problem["v_dim"]),
    }
    return [
        Array(name=name, shape=shape, dtype=problem.dtype, row_major=True)
        for name, shape in shapes.items()
    ]


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    """The mask's block lists are scalars that steer the kernel: constants of the function."""
    blocks = splash.BlockSizes(
        block_q=config["block_q"],
        block_kv=config["block_kv"],
        block_kv_compute=config["block_kv_compute"],
    )
    shape = (problem["seq"], problem["seq"])
    mask = masks.CausalMask(shape) if problem.option("causal") else masks.FullMask(shape)
    heads = masks.MultiHeadMask([mask] * problem["heads"])
    attention: Callable[..., Any] = splash.make_splash_mha_single_device(heads, block_sizes=blocks)
    return attention


def _reference(problem: Problem) -> Callable[..., Any]:
    def attention(q: Any, k: Any, v: Any) -> Any:
        q = q.reshape(problem["kv_heads"], -1, *q.shape[1:])
        logits = jnp.einsum("hgqd,hkd->hgqk", q, k, preferred_element_type=jnp.float32)
        if problem.option("causal"):
            visible = jnp.tril(jnp.ones(logits.shape[2:], bool))
            logits = jnp.where(visible, logits, -jnp.inf)
        weights = jax.nn.softmax(logits, axis=-1)
        out = jnp.einsum("hgqk,hkd->hgqd", weights, v.astype(jnp.float32)).astype(q.dtype)
        return out.reshape(problem["heads"], *out.shape[2:])

    return attention


def _blocks(problem: Problem) -> list[int]:
    return block_sizes(problem["seq"], minimum=128, maximum=2048)


def _check(problem: Problem) -> str | None:
    uneven = problem["heads"] % problem["kv_heads"]
    return "heads must be a multiple of kv_heads" if uneven else None


KERNEL = Kernel(
    name="splash_attention",
    dims=("heads", "kv_heads", "seq", "qk_dim", "v_dim"),
    dtypes=("bfloat16", "float32"),
    options=(Option(name="causal", choices=(True, False), default=True),),
    axes=(
        Axis(name="block_q", choices=_blocks, dim="seq"),
        Axis(name="block_kv", choices=_blocks, dim="seq"),
        Axis(name="block_kv_compute", choices=_blocks),
    ),
    default=lambda _: dict.fromkeys(("block_q", "block_kv", "block_kv_compute"), 128),
    inputs=_inputs,
    check=_check,
    build=_build,
    reference=_reference,
    doc="JAX's splash attention, forward; heads share keys and values in groups",
)
