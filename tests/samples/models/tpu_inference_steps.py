"""Steps as tpu-inference 0.32.0 (``vllm-tpu``) serves them: its JAX models and caches, abstract."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from absent import stand_in
from flax import nnx

stand_in()

from configs import hugging_face  # noqa: E402
from tpu_inference.distributed import jax_parallel_state  # noqa: E402
from tpu_inference.layers.common.attention_metadata import AttentionMetadata  # noqa: E402
from tpu_inference.layers.jax import pp_utils  # noqa: E402
from tpu_inference.models.common.model_loader import _get_model_architecture  # noqa: E402
from tpu_inference.runner.kv_cache import get_kv_cache_shape_with_mesh  # noqa: E402

PAGE, CONTEXT = 128, 4096


def step(model: str, mode: str, data: int = 1, cache: str = "auto") -> Any:
    """``run_model`` on eight devices: the prefill of two prompts of 2,048 tokens for each of the
    ``data`` devices on the first axis of the mesh, or a token of 64 sequences of up to 4,096."""
    jax_parallel_state.init_pp_distributed_environment("", 0, 1, None, need_pp=False)
    pp_utils.get_pp_indices = lambda layers, rank, size: (0, layers)  # vLLM's, for one rank
    mesh = jax.make_mesh(
        (data, 8 // data), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2
    )
    config = hugging_face(model)
    kind = _get_model_architecture(config)
    settings = _settings(config, cache, 8 // data)
    with jax.set_mesh(mesh):
        abstract = nnx.eval_shape(
            lambda: kind(settings, jax.random.key(0), mesh), graph_updates=False
        )
        graph, state = nnx.split(abstract)
        served = nnx.merge(graph, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), state))
        sequences = 64 if mode == "decode" else 2 * data
        tokens = 64 if mode == "decode" else 2048 * sequences
        caches = _caches(config, cache, mesh)
        return served(caches, jnp.zeros(tokens, jnp.int32), _metadata(tokens, sequences, data))[1]


def _settings(config: Any, cache: str, model_axis: int) -> Any:
    """What its models read of vLLM's configuration."""
    model = SimpleNamespace(
        hf_config=config,
        hf_text_config=config,
        dtype=jnp.bfloat16,
        runner_type="generate",
        use_mla=hasattr(config, "kv_lora_rank"),
        get_vocab_size=lambda: config.vocab_size,
        get_head_size=lambda: config.head_dim,
    )
    return SimpleNamespace(
        model_config=model,
        cache_config=SimpleNamespace(cache_dtype=cache),
        parallel_config=SimpleNamespace(tensor_parallel_size=model_axis),
        quant_config=None,
        speculative_config=None,
        lora_config=None,
        additional_config={},
    )


def _caches(config: Any, cache: str, mesh: Any) -> list[Any]:
    dtype = jnp.bfloat16 if cache == "auto" else jnp.dtype(cache)
    shape = get_kv_cache_shape_with_mesh(
        mesh, 64 * CONTEXT // PAGE, PAGE, config.num_key_value_heads, config.head_dim, dtype
    )
    return [jnp.zeros(shape, dtype) for _ in range(config.num_hidden_layers)]


def _metadata(tokens: int, sequences: int, data: int) -> AttentionMetadata:
    return AttentionMetadata(
        input_positions=jnp.zeros(tokens, jnp.int32),
        block_tables=jnp.zeros(sequences * CONTEXT // PAGE, jnp.int32),
        seq_lens=jnp.zeros(sequences, jnp.int32),
        query_start_loc=jnp.zeros(sequences + data, jnp.int32),
        request_distribution=jnp.zeros(3 * data, jnp.int32),
        padded_num_reqs=sequences,
    )
