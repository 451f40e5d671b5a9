"""Kernels of packages that the catalogue does not have, as a model would call them."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.matmul import matmul
from maxtext.kernels.attention.ragged_attention import ragged_gqa
from tokamax._src.ops.deepseek_rope.pallas_mosaic_tpu_kernel import rope
from tokamax._src.ops.experimental.fused_fp8_matmul import pallas_mosaic_tpu_kernel as fp8
from tokamax._src.ops.gmm_v2.gmm_v2 import gmm_v2
from tokamax._src.ops.mhc.pre_kernel import mhc_pre_mixes
from tokamax._src.ops.router_topk.pallas_mosaic_tpu_kernel import select
from tokamax._src.ops.topk.pallas_mosaic_tpu_kernel import sparsecore_topk


def step(x: Any, lengths: Any) -> Any:
    """``x``: [1024, 2048]. A layer's kernels, two of them in a loop of four."""
    rows, width = x.shape
    weights = jnp.ones((width, width), x.dtype)
    y = matmul(x, weights, block_shape=(256, 256), block_k=512)
    scales = jnp.ones(width, jnp.float32)
    y += fp8.fused_fp8_matmul_pallas(
        x, weights.astype(jnp.float8_e4m3fn), scales, bm=256, bk=512, bn=256
    )
    y = rope(y.reshape(rows, -1, 128), jnp.arange(rows), jnp.ones((4096, 64), jnp.float32))
    keys = jnp.ones((len(lengths), 2048, 4, 128), x.dtype)
    seen = ragged_gqa(y[: len(lengths), None], keys, keys, lengths)[0]

    def layer(x: Any, _: Any) -> Any:
        weights, experts = select(x[:, :256].astype(jnp.float32), 8)
        sizes = jnp.bincount(experts.reshape(-1), length=8)
        mixed = gmm_v2(x, jnp.ones((8, width, 1024), x.dtype), sizes)
        x += (mixed.sum() + weights.sum()).astype(x.dtype)
        return x, mhc_pre_mixes(x, jnp.ones((24, width)))[0]

    x, mixes = jax.lax.scan(layer, x, length=4)
    return x, mixes, seen, y


def searched(scores: Any) -> Any:
    """On SparseCores, which v6e has."""
    return sparsecore_topk(scores, 64)
