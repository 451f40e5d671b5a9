"""Kernels of packages that the catalogue does not have, as a model would call them."""

from typing import Any

import jax
import jax.numpy as jnp


def products(x: Any) -> Any:
    """JAX's matmul, and tokamax's in fp8 with scales of blocks."""
    from jax.experimental.pallas.ops.tpu.matmul import matmul
    from tokamax._src.ops.experimental.fused_fp8_matmul import pallas_mosaic_tpu_kernel as fp8

    width = x.shape[1]
    x = matmul(x, jnp.ones((width, width), x.dtype), block_shape=(256, 256), block_k=512)
    weights = jnp.ones((width, width), jnp.float8_e4m3fn)
    scales = jnp.ones(width, jnp.float32)
    return fp8.fused_fp8_matmul_pallas(x, weights, scales, bm=256, bk=512, bn=256)


def decoded(q: Any, k: Any, lengths: Any) -> Any:
    """MaxText's ragged attention of one token, of heads that share keys."""
    from maxtext.kernels.attention.ragged_attention import ragged_gqa

    return ragged_gqa(q, k, k, lengths, block_size=256)[0]


def routed(scores: Any) -> Any:
    """tokamax's router."""
    from tokamax._src.ops.router_topk.pallas_mosaic_tpu_kernel import select

    return jax.lax.scan(lambda carry, _: (carry, select(scores, 8)[0]), 0.0, length=4)[1]


def connected(x: Any) -> Any:
    """tokamax's manifold-constrained hyper-connections."""
    from tokamax._src.ops.mhc.pre_kernel import mhc_pre_mixes

    return mhc_pre_mixes(x, jnp.ones((24, x.shape[1]), jnp.float32))[0]


def rotated(x: Any, positions: Any) -> Any:
    """tokamax's rotary embedding, which chooses its tile itself."""
    from tokamax._src.ops.deepseek_rope.pallas_mosaic_tpu_kernel import rope

    return rope(x, positions, jnp.ones((4096, 64), jnp.float32))


def mixed(x: Any, sizes: Any) -> Any:
    """tokamax's second grouped matrix product."""
    from tokamax._src.ops.gmm_v2.gmm_v2 import gmm_v2

    return gmm_v2(x, jnp.ones((8, x.shape[1], 1024), x.dtype), sizes)
