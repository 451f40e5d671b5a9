"""Plain attention and its gradients: what JAX's attention kernels are checked against."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autotune import Problem
from autotune.declaring.kernel import block_sizes

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


def scores(q: Any, k: Any, visible: Any | None, scale: float, cap: float | None = None) -> Any:
    """[..., heads, q_len, head_dim] x [..., kv_heads, kv_len, head_dim], grouped query heads, to
    [..., kv_heads, group, q_len, kv_len] in float32, between -``cap`` and ``cap``."""
    logits = scale * jnp.einsum(
        "...hgqd,...hkd->...hgqk", grouped(q, k), k, preferred_element_type=jnp.float32
    )
    logits = logits if cap is None else cap * jnp.tanh(logits / cap)
    return logits if visible is None else jnp.where(visible, logits, _HIDDEN)


def grouped(q: Any, k: Any) -> Any:
    """[..., heads, length, dim] to [..., kv_heads, group, length, dim]."""
    kv_heads = k.shape[-3]
    return q.reshape(*q.shape[:-3], kv_heads, q.shape[-3] // kv_heads, *q.shape[-2:])


def forward(q: Any, k: Any, v: Any, visible: Any | None, scale: float) -> Any:
    """softmax(q k^T) v; the weights in the dtype of ``v``."""
    return weighted(scores(q, k, visible, scale), v)[0]


def weighted(logits: Any, v: Any, sinks: Any | None = None) -> tuple[Any, Any]:
    """softmax(``logits``) v, the weights in the dtype of ``v``; and the log of the row sums,
    [..., heads, q_len]. ``sinks``, [kv_heads, group, 1, 1]: a logit of each head without a value.
    """
    top = jnp.max(logits, axis=-1, keepdims=True)
    top = top if sinks is None else jnp.maximum(top, sinks)
    weights = jnp.exp(logits - top)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    total = total if sinks is None else total + jnp.exp(sinks - top)
    out = jnp.einsum(
        "...hgqk,...hkd->...hgqd",
        (weights / total).astype(v.dtype),
        v,
        preferred_element_type=jnp.float32,
    )
    lead, (kv_heads, group, q_len) = logits.shape[:-4], logits.shape[-4:-1]
    rows = (*lead, kv_heads * group, q_len)
    return out.reshape(*rows, v.shape[-1]), (jnp.log(total) + top).reshape(rows)


def gradients(
    q: Any,
    k: Any,
    v: Any,
    do: Any,
    di: Any,
    weights: Callable[[Any], Any],
    visible: Any | None,
    scale: float,
    cap: float | None = None,
) -> tuple[Any, Any, Any]:
    """dq, dk, dv in float32, from the statistics that the forward pass has saved.

    ``weights``: of the scores, from those statistics; ``di``: [..., heads, q_len], the sums of
    output times its gradient. Source: Dao et al., FlashAttention (2022), algorithm 4.
    """
    dtype = v.dtype
    logits = scores(q, k, visible, scale, cap)
    probabilities = weights(logits)  # [..., kv_heads, group, q_len, kv_len]
    if visible is not None:
        probabilities = jnp.where(visible, probabilities, 0.0)
    do_grouped, q_grouped = grouped(do, k), grouped(q, k)
    product = {"preferred_element_type": jnp.float32}
    dv = jnp.einsum("...hgqk,...hgqd->...hkd", probabilities.astype(dtype), do_grouped, **product)
    slopes = jnp.einsum("...hgqd,...hkd->...hgqk", do_grouped, v, **product)
    ds = probabilities * (slopes - grouped(di[..., None], k)) * scale
    if cap is not None:  # what is hidden is far below -cap
        ds *= 1 - jnp.clip(logits / cap, -1, 1) ** 2
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
