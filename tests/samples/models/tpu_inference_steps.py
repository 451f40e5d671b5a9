"""Steps as tpu-inference 0.32.0 (``vllm-tpu``) serves them: its JAX models and caches, abstract."""

import os
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
from tpu_inference.layers.common.sharding import MESH_AXIS_NAMES  # noqa: E402
from tpu_inference.layers.jax import pp_utils  # noqa: E402
from tpu_inference.models.common.model_loader import _get_model_architecture  # noqa: E402
from tpu_inference.runner.kv_cache import get_kv_cache_shape_with_mesh  # noqa: E402
from tpu_inference.utils import get_layer_kv_params  # noqa: E402

PAGE, CONTEXT = 128, 4096


class _Settings(SimpleNamespace):
    """What is not set is None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)


def step(model: str, mode: str, data: int = 1, cache: str = "auto") -> Any:
    """``run_model`` on eight devices: the prefill of two prompts of 2,048 tokens for each of the
    ``data`` devices on the first axis of the mesh, or a token of 64 sequences of up to 4,096."""
    config = hugging_face(model)
    axes = {"data": data, "model": 8 // data}
    if hasattr(config, "kv_lora_rank"):  # DeepSeek's need all axes
        os.environ["NEW_MODEL_DESIGN"] = "1"
        axes = {name: axes.get(name, 1) for name in MESH_AXIS_NAMES}
    mesh, graph, state = abstract(config, cache, axes)
    with jax.set_mesh(mesh):
        served = nnx.merge(graph, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), state))
        if hasattr(config, "kv_lora_rank"):
            _load_latent(served.model, config)
        sequences = 64 if mode == "decode" else 2 * data
        tokens = 64 if mode == "decode" else 2048 * sequences
        given = caches(config, cache, mesh, 64 * CONTEXT // PAGE)
        return served(given, jnp.zeros(tokens, jnp.int32), _metadata(tokens, sequences, data))[1]


def abstract(config: Any, cache: str, axes: dict[str, int]) -> tuple[Any, Any, Any]:
    """A mesh, and a model over it: its graph, and its weights without values."""
    jax_parallel_state.init_pp_distributed_environment("", 0, 1, None, need_pp=False)
    pp_utils.get_pp_indices = lambda layers, rank, size: (0, layers)  # vLLM's, for one rank
    kinds = (jax.sharding.AxisType.Auto,) * len(axes)
    mesh = jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=kinds)
    kind, settings = _get_model_architecture(config), _settings(config, cache, axes["model"])
    with jax.set_mesh(mesh):
        model = nnx.eval_shape(lambda: kind(settings, jax.random.key(0), mesh), graph_updates=False)
    return mesh, *nnx.split(model)


def _settings(config: Any, cache: str, model_axis: int) -> Any:
    """What its models read of vLLM's configuration."""
    model = _Settings(
        hf_config=config,
        hf_text_config=config.get_text_config(),
        dtype=jnp.bfloat16,
        runner_type="generate",
        use_mla=hasattr(config, "kv_lora_rank"),
        get_vocab_size=lambda: config.get_text_config().vocab_size,
        get_head_size=lambda: config.head_dim,
    )
    return _Settings(
        model_config=model,
        cache_config=_Settings(cache_dtype=cache),
        parallel_config=_Settings(tensor_parallel_size=model_axis),
        sharding_config=_Settings(tp_size=model_axis, attn_dp_size=1),
        load_config=_Settings(load_format="auto"),
        aux_output_config=_Settings(),
        additional_config={},
    )


def _load_latent(model: Any, config: Any) -> None:
    """What DeepSeek's models make as they load weights: angles, and projections of keys and
    values that are parts of one."""
    angles = model.rope_emb
    angles.mscale = nnx.data(jnp.ones((), jnp.float32))
    angles.sin_cos_cache = nnx.data(angles._compute_sin_cos())
    heads, latent = config.num_attention_heads, config.kv_lora_rank

    def product(equation: str, dim: int) -> Any:
        return lambda x: jnp.einsum(equation, x, jnp.zeros((latent, heads, dim), x.dtype))

    for layer in model.layers:
        layer.self_attn.k_up_proj = product("TNH,ANH->NTA", config.qk_nope_head_dim)
        layer.self_attn.v_up_proj = product("NTA,ANH->TNH", config.v_head_dim)


def caches(config: Any, cache: str, mesh: Any, pages: int) -> list[Any]:
    dtype = jnp.bfloat16 if cache == "auto" else jnp.dtype(cache)
    latent, text = getattr(config, "kv_lora_rank", 0), config.get_text_config()
    dim = latent and latent + -(-config.qk_rope_head_dim // 128) * 128  # in whole lanes

    def of_layer(kind: str) -> Any:
        head_dim, heads = get_layer_kv_params(text, kind)
        size = (pages, PAGE, heads, dim or head_dim)
        shape = get_kv_cache_shape_with_mesh(mesh, *size, dtype, use_mla=bool(latent))
        return jnp.zeros(shape, dtype)

    return [of_layer(kind) for kind in getattr(text, "layer_types", [""] * text.num_hidden_layers)]


def _metadata(tokens: int, sequences: int, data: int) -> AttentionMetadata:
    return AttentionMetadata(
        input_positions=jnp.zeros(tokens, jnp.int32),
        block_tables=jnp.zeros(sequences * CONTEXT // PAGE, jnp.int32),
        seq_lens=jnp.zeros(sequences, jnp.int32),
        query_start_loc=jnp.zeros(sequences + data, jnp.int32),
        request_distribution=jnp.zeros(3 * data, jnp.int32),
        padded_num_reqs=sequences,
    )
