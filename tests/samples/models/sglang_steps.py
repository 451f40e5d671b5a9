"""Steps as sglang-jax 0.1.0rc0 serves them: its own models, caches and attention, abstract."""

import json
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from sgl_jax.srt.configs.model_config import AttentionArch, ModelConfig
from sgl_jax.srt.layers.attention import flashattention_backend, mla_backend
from sgl_jax.srt.layers.logits_processor import LogitsMetadata
from sgl_jax.srt.mem_cache import memory_pool
from sgl_jax.srt.model_executor.forward_batch_info import (
    CaptureHiddenMode,
    ForwardBatch,
    ForwardMode,
)
from sgl_jax.srt.model_loader.arch import get_model_architecture
from sgl_jax.srt.utils.mesh_utils import create_device_mesh

PAGE, CONTEXT = 128, 4096
CONFIGS = json.loads(Path(__file__).with_name("configs.json").read_text())


def step(
    model: str, mode: str, data: int = 1, backend: str = "auto", cache: Any = jnp.bfloat16
) -> Any:
    """A forward pass on eight devices, as ``ModelRunner`` jits it: the prefill of two prompts of
    2,048 tokens, or one token of each of 64 sequences of up to 4,096. ``data``: devices on the
    first axis of the mesh, ``backend``: of experts."""
    mesh = create_device_mesh([data, 8 // data], [1, 1])
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(CONFIGS[model]))
        config = ModelConfig(folder, moe_backend=backend)
    config.configure_for_tensor_parallel(8 // data)
    config.hf_config.ep_size = 8
    config.hf_config.moe_backend = config.moe_backend.value
    config.hf_config.use_absorbed_mla = True
    kind, _ = get_model_architecture(config)
    with jax.set_mesh(mesh):
        abstract = nnx.eval_shape(lambda: kind(config.hf_config, dtype=config.dtype, mesh=mesh))
        graph, state = nnx.split(abstract)
        served = nnx.merge(graph, jax.tree.map(_zeros, state))
        pool, attention = _pool(config, mesh, data, cache)
        pool.kv_buffer = [jax.sharding.reshard(b, pool.kv_sharding) for b in pool.kv_buffer]
        batch = _batch(mode, mesh, data, attention)
        logits = LogitsMetadata(batch.forward_mode, CaptureHiddenMode.NULL)
        logits.logits_indices = _array(batch.batch_size, mesh)
        return served(batch, memory_pool.MemoryPools(token_to_kv_pool=pool), logits)[0]


def _zeros(array: Any) -> Any:
    return jnp.zeros(array.shape, array.dtype, out_sharding=array.sharding)


def _array(size: int, mesh: Any) -> Any:
    """Of integers, divided as the rows of a batch are."""
    return jnp.zeros(size, jnp.int32, out_sharding=NamedSharding(mesh, P("data")))


def _pool(config: ModelConfig, mesh: Any, data: int, dtype: Any) -> tuple[Any, Any]:
    """The cache of 64 sequences, and what attends to it."""
    text = config.hf_text_config
    common = {"size": 64 * CONTEXT, "page_size": PAGE, "dtype": dtype, "mesh": mesh}
    common |= {"layer_num": config.num_hidden_layers, "dp_size": data}
    if config.attention_arch == AttentionArch.MLA:
        ranks = {"kv_lora_rank": text.kv_lora_rank, "qk_rope_head_dim": text.qk_rope_head_dim}
        pool = memory_pool.MLATokenToKVPool(**common, **ranks)
        return pool, mla_backend.MLAAttentionBackend(
            num_attn_heads=config.num_attention_heads,
            qk_nope_head_dim=text.qk_nope_head_dim,
            v_head_dim=text.v_head_dim,
            page_size=PAGE,
            mesh=mesh,
            **ranks,
        )
    heads = config.get_total_num_kv_heads_with_replication(8 // data)
    dim = -(-config.head_dim // 128) * 128
    pool = memory_pool.MHATokenToKVPool(**common, head_num=heads, head_dim=dim)
    attention = flashattention_backend.FlashAttention
    return pool, attention(
        config.num_attention_heads, heads, config.head_dim, page_size=PAGE, mesh=mesh
    )


def _batch(mode: str, mesh: Any, data: int, attention: Any) -> ForwardBatch:
    decodes = mode == "decode"
    sequences = 64 if decodes else 2 * data
    tokens = sequences if decodes else 2048 * sequences
    metadata = attention.forward_metadata
    metadata.cu_q_lens = _array(sequences + data, mesh)
    metadata.cu_kv_lens = _array(sequences + data, mesh)
    metadata.page_indices = _array(sequences * CONTEXT // PAGE, mesh)
    metadata.seq_lens = _array(sequences, mesh)
    metadata.distribution = _array(3 * data, mesh)
    return ForwardBatch(
        bid=0,
        forward_mode=ForwardMode.DECODE if decodes else ForwardMode.EXTEND,
        batch_size=sequences,
        input_ids=_array(tokens, mesh),
        req_pool_indices=_array(sequences, mesh),
        seq_lens=_array(sequences, mesh),
        out_cache_loc=_array(tokens, mesh),
        positions=_array(tokens, mesh),
        attn_backend=attention,
        cache_loc=_array(sequences * CONTEXT, mesh),
        capture_hidden_mode=CaptureHiddenMode.NULL,
    )
