"""Qwen3 as google-tunix has it (flax), with splash attention and, of experts, megablox."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tunix.models.qwen3 import model as qwen3


def _of(config: Any, **changes: Any) -> Any:
    types = {"dtype": jnp.bfloat16, "param_dtype": jnp.bfloat16}
    blocks = {"use_flash_attention": True, "flash_attention_block_size": 512}
    return dataclasses.replace(config, **types, **blocks, **changes)


def _mesh() -> Any:
    return jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp"))


def _positions(tokens: Any) -> Any:
    return jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)


def dense(tokens: Any) -> Any:
    """All 28 layers of the 0.6B, one after another."""
    with _mesh():
        model = qwen3.Qwen3(_of(qwen3.ModelConfig.qwen3_0p6b()), rngs=nnx.Rngs(0))
        return model(tokens, _positions(tokens), None, None)[0]


def trained(tokens: Any) -> Any:
    """The gradient of four layers that are computed again."""
    remat = qwen3.RematConfig.DECODER
    config = _of(qwen3.ModelConfig.qwen3_0p6b(), num_layers=4, remat_config=remat)
    with _mesh():
        model = qwen3.Qwen3(config, rngs=nnx.Rngs(0))

        def loss(model: Any) -> Any:
            return model(tokens, _positions(tokens), None, None)[0].astype(jnp.float32).sum()

        return nnx.grad(loss)(model)


def experts(tokens: Any) -> Any:
    """The 48 layers of the 30B with 3B active, in one scan."""
    config = _of(qwen3.ModelConfig.qwen3_30b_a3b())

    @nnx.split_rngs(splits=config.num_layers)
    @nnx.vmap(in_axes=0, out_axes=0)
    def layers(rngs: Any) -> Any:
        return qwen3.DecoderLayer(config=config, rngs=rngs)

    @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
    def run(layer: Any, x: Any) -> Any:
        return layer(x, _positions(tokens), None, None)[1]

    with _mesh():
        x = jnp.zeros((*tokens.shape, config.embed_dim), config.dtype)
        return run(layers(nnx.Rngs(0)), x)
