"""Steps of a llama in plain ``jax.numpy``: training as MaxText's recipes do it (scan, remat with
offload, AdamW, FSDP, splash attention), and decoding; only ``benchmarks steps`` uses them.

``AUTOTUNE_STEP`` has the sizes and settings as JSON, names as in MaxText's recipes.
"""

import json
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import Mesh, NamedSharding, PartitionSpec

LLAMA_8B = {"layers": 32, "emb": 4096, "mlp": 14336, "heads": 32, "kv_heads": 8, "vocab": 128256}
SET: dict[str, Any] = LLAMA_8B | json.loads(os.environ.get("AUTOTUNE_STEP", "{}"))
LAYERS, EMB, MLP = SET["layers"], SET["emb"], SET["mlp"]
HEADS, KV_HEADS, VOCAB, HEAD = SET["heads"], SET["kv_heads"], SET["vocab"], 128
LENGTH, BATCH = SET.get("max_target_length", 2048), SET.get("per_device_batch_size", 1)
NAMES = ("decoder_layer_input", "query_proj", "key_proj", "value_proj", "out_proj")
OFFLOADED = [name for name in NAMES if SET.get(name) == "offload"]
if SET.get("remat_policy") == "qkv_proj_offloaded":
    OFFLOADED = list(NAMES[1:4])

MESH = Mesh(np.array(jax.devices(), dtype=object), ("fsdp",))
ROWS, ALL = PartitionSpec("fsdp"), PartitionSpec()


def _norm(x: Any, scale: Any) -> Any:
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide * wide, -1, keepdims=True)
    return (wide * jax.lax.rsqrt(mean + 1e-5) * scale).astype(x.dtype)


def _rotated(x: Any, places: Any) -> Any:
    """Rotary embedding; ``places`` beside the last two axes of ``x``."""
    turns = places[..., None, None] / 500000.0 ** (jnp.arange(0, HEAD, 2) / HEAD)
    first, second = jnp.split(x.astype(jnp.float32), 2, -1)
    cos, sin = jnp.cos(turns), jnp.sin(turns)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(turned, -1).astype(x.dtype)


def _splash() -> Callable[..., Any]:
    sizes = {name: SET.get(f"sa_{name}", 512) for name in ("block_q", "block_kv", "block_q_dkv")}
    sizes |= {name: SET.get(f"sa_{name}", 512) for name in ("block_kv_compute", "block_kv_dkv")}
    sizes["block_kv_dkv_compute"] = SET.get("sa_block_kv_dkv_compute", 512)
    is_fused = SET.get("sa_use_fused_bwd_kernel", False)
    apart = {"block_q_dq": SET.get("sa_block_q_dq", 512), "block_kv_dq": 512}
    blocks = kernels.BlockSizes(
        **sizes, **({} if is_fused else apart), use_fused_bwd_kernel=is_fused
    )
    mask = masks.MultiHeadMask([masks.CausalMask((LENGTH, LENGTH))] * HEADS)
    attend = kernels.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=blocks)
    specs = (ROWS, ROWS, ROWS)
    whole = jax.vmap(attend)
    sharded: Callable[..., Any] = jax.shard_map(
        whole, mesh=MESH, in_specs=specs, out_specs=ROWS, check_vma=False
    )
    return sharded


def _mlp(x: Any, w: dict[str, Any]) -> Any:
    with jax.named_scope("mlp"):
        h = _norm(x, w["norm2"])
        return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]


def _layer(attend: Callable[..., Any], x: Any, w: dict[str, Any]) -> Any:
    x, places = checkpoint_name(_constrained(x, ROWS), "decoder_layer_input"), jnp.arange(LENGTH)
    with jax.named_scope("attention"):
        h, shape = _norm(x, w["norm1"]), (*x.shape[:2], -1, HEAD)
        q = checkpoint_name(_rotated((h @ w["q"]).reshape(shape), places), "query_proj")
        k = checkpoint_name(_rotated((h @ w["k"]).reshape(shape), places), "key_proj")
        v = checkpoint_name((h @ w["v"]).reshape(shape), "value_proj")
        q, k, v = (part.transpose(0, 2, 1, 3) for part in (q * HEAD**-0.5, k, v))
        out = attend(q, k, v).transpose(0, 2, 1, 3).reshape(*h.shape[:2], -1)
        x = x + checkpoint_name(out @ w["o"], "out_proj")
    return _constrained(_mlp(x, w), ROWS)


def _constrained(x: Any, spec: Any) -> Any:
    return jax.lax.with_sharding_constraint(x, NamedSharding(MESH, spec))


def _loss(attend: Callable[..., Any], params: Any, tokens: Any) -> Any:
    w = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    with jax.named_scope("embed"):
        picked = _constrained(jax.nn.one_hot(tokens[:, :-1], VOCAB, dtype=jnp.bfloat16), ROWS)
        x = _constrained(picked @ _constrained(w["embed"], ALL), ROWS)
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=OFFLOADED,
        offload_src="device",
        offload_dst="pinned_host",
    )
    layer = jax.checkpoint(partial(_layer, attend), policy=policy, prevent_cse=False)
    x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, w["layers"])
    with jax.named_scope("head"):
        logits = (_norm(x, w["norm"]) @ w["head"]).astype(jnp.float32)
        target = jax.nn.one_hot(tokens[:, 1:], VOCAB)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.sum(logits * target, -1))


def _train(state: Any, tokens: Any) -> Any:
    params, first, second, count = state
    loss, grads = jax.value_and_grad(partial(_loss, _splash()))(params, tokens)
    with jax.named_scope("adamw"):
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, second, grads)
        params = jax.tree.map(
            lambda p, m, v: p - 3e-5 * (m / (jnp.sqrt(v) + 1e-8) + 0.1 * p), params, first, second
        )
    return (params, first, second, count + 1), loss


def _weights(dtype: Any, place: Callable[..., Any]) -> dict[str, Any]:
    """``place``: the sharding of an array by the axis that is divided."""

    def array(*shape: int, axis: int | None = None) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place(axis))

    q, kv = HEADS * HEAD, KV_HEADS * HEAD
    layers = {
        **{name: array(LAYERS, EMB, size, axis=1) for name, size in (("q", q), ("k", kv))},
        "v": array(LAYERS, EMB, kv, axis=1),
        "o": array(LAYERS, q, EMB, axis=2),
        **{name: array(LAYERS, EMB, MLP, axis=1) for name in ("gate", "up")},
        "down": array(LAYERS, MLP, EMB, axis=2),
        **{name: array(LAYERS, EMB) for name in ("norm1", "norm2")},
    }
    ends = {"embed": array(VOCAB, EMB, axis=1), "head": array(EMB, VOCAB, axis=0)}
    return {"layers": layers, **ends, "norm": array(EMB)}


def _divided(axis: int | None) -> NamedSharding:
    spec = ALL if axis is None else PartitionSpec(*[None] * axis, "fsdp")
    return NamedSharding(MESH, spec)


_PARAMS = _weights(jnp.float32, _divided)
STATE = (*(_PARAMS, _PARAMS, _PARAMS), jax.ShapeDtypeStruct((), jnp.int32, sharding=_divided(None)))
TOKENS = jax.ShapeDtypeStruct(
    (BATCH * MESH.size, LENGTH + 1), jnp.int32, sharding=NamedSharding(MESH, ROWS)
)
train = jax.jit(
    _train, donate_argnums=0, out_shardings=(jax.tree.map(lambda leaf: leaf.sharding, STATE), None)
)

SEQUENCES, CACHED, PAGE = SET.get("sequences", 16), 2048, 128
PAGES_OF_BLOCK = SET.get("pages_per_compute_block", 0)  # 0: attention in jax.numpy, without pages
_PAGES = np.arange(SEQUENCES * CACHED // PAGE, dtype=np.int32).reshape(SEQUENCES, -1)
WEIGHTS = _weights(jnp.bfloat16, lambda _: None)
_OF_LAYER = (KV_HEADS, _PAGES.size, PAGE) if PAGES_OF_BLOCK else (SEQUENCES, KV_HEADS, CACHED)
CACHE = (jax.ShapeDtypeStruct((LAYERS, *_OF_LAYER, HEAD), jnp.bfloat16),) * 2
NEXT = jax.ShapeDtypeStruct((SEQUENCES,), jnp.int32)


def _decoded(x: Any, w: dict[str, Any], cache: Any, places: Any) -> Any:
    with jax.named_scope("attention"):
        h, shape = _norm(x, w["norm1"]), (SEQUENCES, -1, HEAD)
        q, k, v = ((h @ w[name]).reshape(shape) for name in "qkv")
        attend = _paged if PAGES_OF_BLOCK else _plain
        out, cache = attend(_rotated(q, places), _rotated(k, places), v, cache, places)
        x = x + out.astype(x.dtype).reshape(SEQUENCES, -1) @ w["o"]
    return _mlp(x, w), cache


def _plain(q: Any, k: Any, v: Any, cache: Any, places: Any) -> Any:
    q, each = q.reshape(SEQUENCES, KV_HEADS, -1, HEAD), jnp.arange(SEQUENCES)
    keys, values = (c.at[each, :, places].set(n) for c, n in zip(cache, (k, v), strict=True))
    scores = jnp.einsum("bngh,bnsh->bngs", q, keys, preferred_element_type=jnp.float32)
    scores = jnp.where(jnp.arange(CACHED) <= places[:, None, None, None], scores, -1e30)
    shares = jax.nn.softmax(scores * HEAD**-0.5, -1).astype(q.dtype)
    return jnp.einsum("bngs,bnsh->bngh", shares, values), (keys, values)


def _paged(q: Any, k: Any, v: Any, cache: Any, places: Any) -> Any:
    """JAX's kernel; lengths and pages are constants: its time depends on them."""
    page = jnp.take_along_axis(jnp.asarray(_PAGES), places[:, None] // PAGE, 1)[:, 0]
    keys, values = (
        c.at[:, page, places % PAGE].set(n.swapaxes(0, 1))
        for c, n in zip(cache, (k, v), strict=True)
    )
    lengths, pages = jnp.full(SEQUENCES, CACHED, jnp.int32), jnp.asarray(_PAGES)
    out = paged_attention(
        q * HEAD**-0.5, keys, values, lengths, pages, pages_per_compute_block=PAGES_OF_BLOCK
    )
    return out, (keys, values)


@partial(jax.jit, donate_argnums=1)
def decode(weights: Any, cache: Any, tokens: Any, places: Any) -> Any:
    """One token for each sequence, on one device."""
    with jax.named_scope("embed"):
        x = weights["embed"][tokens]
    layers = weights["layers"], cache
    x, cache = jax.lax.scan(lambda x, part: _decoded(x, part[0], part[1], places), x, layers)
    with jax.named_scope("head"):
        return jnp.argmax(_norm(x, weights["norm"]) @ weights["head"], -1), cache


WIDE, HIDDEN, TOGETHER = 2048, 8192, 4096  # of the layers that are counted


def _block(x: Any, w: Any) -> Any:
    return x + jax.nn.gelu(x @ w[0]) @ w[1]


@partial(jax.jit)
def forward(weights: Any, x: Any) -> Any:
    """As many layers as the weights have, in a scan."""
    return jax.lax.scan(lambda x, w: (_block(x, w), None), x, weights)[0]


def _layers(count: int) -> Any:
    shapes = (count, WIDE, HIDDEN), (count, HIDDEN, WIDE)
    return tuple(jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes)


FOUR, EIGHT = _layers(4), _layers(8)
X = jax.ShapeDtypeStruct((TOGETHER, WIDE), jnp.bfloat16)
