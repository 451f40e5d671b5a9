"""JAX's own TPU kernels, where the caller gives no block sizes. Its paged attention is not among
them: it demands them."""

import dataclasses
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from autotune.tables.hooks.hook import Hook, Named, Package, Problems, dtype_of, in_order

_OPS = "jax.experimental.pallas.ops.tpu."
_SPLASH = f"{_OPS}splash_attention.splash_attention_kernel"
_TILING = 128, 128, 128


def with_gradients(kernel: str, problem: Named) -> Problems:
    return dict.fromkeys((kernel, f"{kernel}_dkv", f"{kernel}_dq"), problem)


def _flash(call: Named) -> Problems:
    """Arrays of [batch, heads, length, head_dim]."""
    if call["ab"] is not None or call["segment_ids"] is not None:
        return {}
    q, k, v = call["q"], call["k"], call["v"]
    problem = dict(zip(("batch", "heads", "q_len", "head_dim"), q.shape, strict=True))
    problem |= {"kv_len": k.shape[2], "dtype": dtype_of(q, k, v), "causal": bool(call["causal"])}
    return with_gradients("jax_flash_attention", problem)


def _ragged(call: Named) -> Problems:
    """Queries [tokens, heads, head_dim] of sequences one after another. Where there are as many
    as sequences all of them decode; else nobody knows while it is traced."""
    if any(call[name] is not None for name in ("sliding_window", "soft_cap", "k_scale", "v_scale")):
        return {}
    q, kv_pages, (seqs, pages) = call["q"], call["kv_pages"], call["page_indices"].shape
    problem = dict(zip(("tokens", "q_heads", "head_dim"), q.shape, strict=True))
    problem |= {"seqs": seqs, "pages": pages, "page_size": kv_pages.shape[1]}
    problem |= {"kv_heads": kv_pages.shape[2] // 2, "dtype": dtype_of(q, kv_pages)}
    batch = "decode" if q.shape[0] == seqs else "mixed"
    return {"jax_ragged_paged_attention": {**problem, "batch": batch}}


def _grouped(call: Named) -> Problems:
    """lhs [m, k], for the gradient of the weights [k, m]. The groups of one device of several, and
    a result of another dtype, are not in the catalogue."""
    lhs, rhs, groups = call["lhs"], call["rhs"], call["group_sizes"].shape[0]
    is_plain = call["existing_out"] is None and lhs.dtype == call["preferred_element_type"]
    if not is_plain or call.get("num_actual_groups", rhs.shape[0]) != groups:
        return {}
    problem = {name: call[name] for name in "mkn"}
    problem |= {"groups": groups, "dtype": dtype_of(lhs, rhs)}
    if "num_actual_groups" in call:
        return {"jax_tgmm": problem}
    return {"jax_gmm": {**problem, "transpose_rhs": call["transpose_rhs"]}}


def _as_default(defaults: Any, lookup: Any) -> Any:
    """JAX takes a function for a tiling, but has a constant as its default."""
    return tuple(lookup if value == _TILING else value for value in defaults)


def _mask_options(mask: Any) -> Named:
    """Of one mask for all heads. Raises ``ValueError`` for one that the catalogue does not have."""
    first, *others = mask.masks
    kind, (before, after) = type(first).__name__, getattr(first, "window_size", (None, 0))
    names = {"FullMask": "full", "CausalMask": "causal", "LocalMask": "local"}
    is_shifted = first.shape[0] != first.shape[1] or getattr(first, "offset", 0) != 0
    if kind not in names or is_shifted or after != 0 or any(other != first for other in others):
        raise ValueError(f"this {kind} is not in the catalogue")
    return {"mask": names[kind], **({"window": before} if kind == "LocalMask" else {})}


@cache
def _with_call(sizes: Any) -> Any:
    """Block sizes that know the call that made their kernel. JAX writes the fields into its
    metadata; ``autotune``: which records they are from."""
    fields = [("autotune", str, dataclasses.field(default=""))]
    as_theirs = lambda self: (sizes, dataclasses.astuple(self)[:-1])  # noqa: E731 (for pickle)
    parts = {"call": None, "__reduce__": as_theirs}
    return dataclasses.make_dataclass(
        sizes.__name__, fields, bases=(sizes,), namespace=parts, frozen=True, eq=False
    )


def _splash_made(call: Named, _axes: Named, default: Callable[[], Any]) -> Any:
    """A splash kernel is made of its mask and block sizes before it knows the arrays. One that was
    made without block sizes knows its call, and is made again for its arrays."""
    sizes, shards = default(), (call["head_shards"], call["q_seq_shards"])
    is_other = call["is_mqa"] or call["attn_logits_soft_cap"] is not None or shards != (1, 1)
    if is_other or not hasattr(call["mask"], "masks"):
        return sizes
    known = _with_call(sizes.__class__)(*dataclasses.astuple(sizes))
    made = tuple((name, value) for name, value in call.items() if name != "block_sizes")
    object.__setattr__(known, "call", made)  # it is frozen
    return known


def _splash(call: Named) -> Problems:
    """q [heads, seq, dim], k and v [kv_heads, seq, dim]."""
    made = getattr(call["self"].kwargs["block_sizes"], "call", None)
    arrays = {**dict(zip("qkv", call.get("args", ()), strict=True)), **call.get("kwargs", {})}
    if made is None or set(arrays) != {*"qkv"}:
        return {}
    (q, k, v), mask = (arrays[name] for name in "qkv"), dict(made)["mask"]
    (heads, seq, qk_dim), (kv_heads, kv_len, v_dim) = q.shape, v.shape
    if (heads, seq, kv_len) != mask.shape or seq != kv_len:
        return {}
    problem = {"heads": heads, "kv_heads": kv_heads, "seq": seq, "qk_dim": qk_dim, "v_dim": v_dim}
    problem |= {"dtype": dtype_of(q, k, v), **_mask_options(mask)}
    return with_gradients("jax_splash_attention", problem)


def _splash_again(call: Named, axes: Named, _default: Callable[[], Any]) -> Any:
    known = call["self"].kwargs["block_sizes"]
    sizes = dataclasses.replace(known, **axes, autotune="; ".join(map(str, call["autotune"])))
    make = sys.modules[_SPLASH]._make_splash_attention
    kernel = make(**dict(known.call), block_sizes=sizes)
    return kernel(*call.get("args", ()), **call.get("kwargs", {}))


_default_of_sizes = partial(Hook, path="BlockSizes.get_default")
_default_tiling = partial(
    Hook,
    module=f"{_OPS}megablox.gmm",
    callers=("gmm", "tgmm"),  # the gradient of gmm hands its tiling on
    problems=_grouped,
    result=in_order("tile_m", "tile_k", "tile_n"),
    put=_as_default,
    original=lambda *_: _TILING,
)
JAX = Package(
    name="jax",
    releases=("0.10.2", "0.12.0.1"),
    hooks=lambda: (
        _default_of_sizes(
            module=f"{_OPS}flash_attention",
            callers=("flash_attention",),
            problems=_flash,
            result=lambda _call, axes, default: dataclasses.replace(default(), **axes),
        ),
        _default_of_sizes(
            module=_SPLASH, callers=("_make_splash_attention",), problems=None, result=_splash_made
        ),
        Hook(
            module=_SPLASH,
            path="SplashAttentionKernel.__call__",
            problems=_splash,
            result=_splash_again,
        ),
        Hook(
            module=f"{_OPS}ragged_paged_attention.kernel",
            path="get_tuned_block_sizes",
            callers=("ragged_paged_attention",),
            problems=_ragged,
            result=in_order("num_kv_pages_per_block", "num_queries_per_block"),
        ),
        _default_tiling(path="gmm.__wrapped__.__defaults__"),
        _default_tiling(path="tgmm.__wrapped__.__defaults__"),
    ),
)
