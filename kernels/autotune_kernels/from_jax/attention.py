"""Plain attention and its gradients: what JAX's attention kernels are checked against."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autotune import Axis, Kernel, Option, Problem
from autotune.declaring.kernel import block_sizes
from autotune_kernels.parts import not_multiple

_HIDDEN = -0.7 * float(np.finfo(np.float32).max)


def dividing_blocks(extent: int, maximum: int = 2048) -> list[int]:
    """128, 256, … up to ``maximum`` as far as they divide ``extent``, and small extents whole."""
    sizes = block_sizes(extent, minimum=128, maximum=maximum)
    return [s for s in sizes if extent % s == 0 and (s == extent or s & (s - 1) == 0)]


def causal(q_len: int, kv_len: int) -> Any:
    """[q_len, kv_len]: query i sees keys up to i."""
    return lax.broadcasted_iota(jnp.int32, (q_len, kv_len), 1) <= lax.broadcasted_iota(
        jnp.int32, (q_len, kv_len), 0
    )


def local(q_len: int, kv_len: int, window: int) -> Any:
    """[q_len, kv_len]: query i sees keys i - ``window`` to i."""
    row = lax.broadcasted_iota(jnp.int32, (q_len, kv_len), 0)
    key = lax.broadcasted_iota(jnp.int32, (q_len, kv_len), 1)
    return (key <= row) & (key >= row - window)


def scores(q: Any, k: Any, visible: Any | None, scale: float) -> Any:
    """[..., heads, q_len, head_dim] x [..., kv_heads, kv_len, head_dim], grouped query heads, to
    [..., kv_heads, group, q_len, kv_len] in float32."""
    logits = jnp.einsum(
        "...hgqd,...hkd->...hgqk", grouped(q, k), k, preferred_element_type=jnp.float32
    )
    return logits * scale if visible is None else jnp.where(visible, logits * scale, _HIDDEN)


def grouped(q: Any, k: Any) -> Any:
    """[..., heads, length, dim] to [..., kv_heads, group, length, dim]."""
    kv_heads = k.shape[-3]
    return q.reshape(*q.shape[:-3], kv_heads, q.shape[-3] // kv_heads, *q.shape[-2:])


def forward(q: Any, k: Any, v: Any, visible: Any | None, scale: float) -> Any:
    """softmax(q k^T) v; the weights in the dtype of ``v``."""
    logits = scores(q, k, visible, scale)
    top = jnp.max(logits, axis=-1, keepdims=True)
    weights = jnp.exp(logits - top)
    weights /= jnp.sum(weights, axis=-1, keepdims=True)
    out = jnp.einsum(
        "...hgqk,...hkd->...hgqd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32
    )
    return out.reshape(*q.shape[:-1], v.shape[-1])


def gradients(
    q: Any,
    k: Any,
    v: Any,
    do: Any,
    di: Any,
    weights: Callable[[Any], Any],
    visible: Any | None,
    scale: float,
) -> tuple[Any, Any, Any]:
    """dq, dk, dv in float32, from the statistics that the forward pass has saved.

    ``weights``: of the scores, from those statistics; ``di``: [..., heads, q_len], the sums of
    output times its gradient. Source: Dao et al., FlashAttention (2022), algorithm 4.
    """
    dtype = v.dtype
    probabilities = weights(scores(q, k, visible, scale))  # [..., kv_heads, group, q_len, kv_len]
    if visible is not None:
        probabilities = jnp.where(visible, probabilities, 0.0)
    do_grouped, q_grouped = grouped(do, k), grouped(q, k)
    product = {"preferred_element_type": jnp.float32}
    dv = jnp.einsum("...hgqk,...hgqd->...hkd", probabilities.astype(dtype), do_grouped, **product)
    slopes = jnp.einsum("...hgqd,...hkd->...hgqk", do_grouped, v, **product)
    ds = probabilities * (slopes - grouped(di[..., None], k)) * scale
    dq = jnp.einsum("...hgqk,...hkd->...hgqd", ds.astype(dtype), k, **product)
    dk = jnp.einsum("...hgqk,...hgqd->...hkd", ds.astype(dtype), q_grouped, **product)
    return dq.reshape(q.shape), dk, dv


def scale_of(head_dim: int) -> float:
    return 1 / math.sqrt(head_dim)


def plain(
    visible: Callable[[Problem], Any],
    scale: Callable[[Problem], float],
    problem: Problem,
    *,
    convert: Any = None,
) -> Callable[..., Any]:
    """XLA's attention of q, k, v as they are or converted first, in the problem's dtype."""

    def attend(*given: Any) -> Any:
        q, k, v = (x if convert is None else x.astype(convert) for x in given)
        return forward(q, k, v, visible(problem), scale(problem)).astype(problem.dtype)

    return attend


def splash_kernel(
    name: str, dims: tuple[str, ...], blocks: tuple[str, ...], **parts: Any
) -> Kernel:
    """A splash attention whose default for every block size is 128. A block that only the loop
    inside runs over (*compute*) cuts no dimension."""
    return Kernel(
        name=name,
        dims=("heads", "kv_heads", "seq", *dims),
        dtypes=("bfloat16", "float32"),
        options=(
            Option(name="mask", choices=("causal", "local", "full"), default="causal"),
            Option(name="window", choices=(128, 256, 512, 1024, 2048, 4096), default=1024),
        ),
        axes=tuple(
            Axis(
                name=block,
                choices=lambda problem: dividing_blocks(problem["seq"]),
                dim=None if block.endswith("compute") else "seq",
            )
            for block in blocks
        ),
        default=lambda _: dict.fromkeys(blocks, 128),
        **parts,
    )


def splash_visible(problem: Problem) -> Any:
    """Its mask: bool [seq, seq], or None where every position sees all."""
    shape = (problem["seq"], problem["seq"])
    if problem.option("mask") == "full":
        return None
    if problem.option("mask") == "causal":
        return causal(*shape)
    return local(*shape, int(problem.option("window")))


def splash_check(problem: Problem) -> str | None:
    """What splash attention refuses, in a sentence."""
    return not_multiple(problem, "heads", "kv_heads") or not_multiple(problem, "seq", 128)


def splash_reduced(window: int, problem: Problem) -> Problem:
    """Two heads of keys with two of queries each; a ``window`` so narrow that it skips blocks."""
    kv_heads = min(2, problem["kv_heads"])
    group = min(2, problem["heads"] // problem["kv_heads"])
    small = problem.with_dims(kv_heads=kv_heads, heads=kv_heads * group)
    return small.with_options(window=window) if small.option("mask") == "local" else small
