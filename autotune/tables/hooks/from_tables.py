"""tpu-inference and sglang-jax, whose kernels ask tables: descriptions say what keys and values
mean. A lookup stands in the module of the kernel that asks it."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from autotune.tables.description import Description, described
from autotune.tables.hooks.hook import Hook, Named, Package, Problems, in_order

_TPU, _SGL = "tpu_inference.kernels.", "sgl_jax.srt.kernels."
_V3 = f"{_TPU}ragged_paged_attention.v3."


def _table(name: str, module: str, made: str = "", **parts: Any) -> Hook:
    """``module``: of the kernel; ``made``: the class of the values, beside their table."""
    table = described(name)
    parts = {"problems": partial(_problem, table), "result": partial(_value, table, made)} | parts
    return Hook(module=module, path=table.lookup, **parts)


def _problem(table: Description, call: Named) -> Problems:
    """Of the arguments of its lookup."""
    fields = " ".join(table.key).split()
    return table.problems_of({name: call[name] for name in fields if name in call})


def _value(table: Description, made: str, _call: Named, axes: Named, _given: Any) -> Any:
    value = table.kernels[0].value_of(axes)
    if made:
        return getattr(sys.modules[table.module], made)(**value)
    return tuple(value[name] for name in table.value.split())


def _encoder(call: Named) -> Problems:
    """Arrays of [batch, heads, length, head_dim]: its key does not say what else there is."""
    if call["ab"] is not None or call["segment_ids"] is not None:
        return {}
    problems = described("tpu-inference-flash-attention").problems_of(
        dict(vars(call["tuning_key"]))
    )
    causal = {"causal": str(bool(call["causal"])).lower()}
    return {kernel: problem | causal for kernel, problem in problems.items()}


def _paged(kernel: str, call: Named) -> Problems:
    """Where there are as many tokens as sequences all of them decode."""
    is_usual = call.get("use_causal_mask", True) and call.get("update_kv_cache", True)
    if not is_usual or str(call["q_dtype"]) != str(call["kv_dtype"]):
        return {}
    seqs, tokens, page_size = call["max_num_seqs"], call["max_num_tokens"], call["page_size"]
    problem = {"seqs": seqs, "tokens": tokens, "page_size": page_size}
    problem |= {"heads": call["actual_num_q_heads"], "kv_heads": call["actual_num_kv_heads"]}
    problem |= {"kv_len": call["pages_per_seq"] * page_size, "dtype": call["q_dtype"]}
    problem |= {"window": call["sliding_window"] or 0, "soft_cap": call["soft_cap"] is not None}
    if kernel.endswith("_64"):
        problem["sinks"] = call["attention_sink"] is not None
    else:
        problem["head_dim"] = call["actual_head_dim"]
    return {kernel: {**problem, "batch": "decode" if seqs == tokens else "mixed"}}


def _of_case(call: Named, axes: Named, _default: Callable[[], Any]) -> Any:
    """It asks once for the sequences that decode, and for the others."""
    case = "d" if getattr(call.get("case"), "name", "") == "DECODE" else "m"
    names = "bq_sz", "bkv_sz", "bq_csz", "bkv_csz"
    return {name: axes[f"{case}_{name}"] for name in names}


TPU_INFERENCE = Package(
    name="tpu-inference",
    releases=("0.32.0",),
    hooks=lambda: (
        _table(
            "tpu-inference-quantized-matmul", f"{_TPU}quantized_matmul.kernel", made="TunedValue"
        ),
        _table("tpu-inference-megablox", f"{_TPU}megablox.gmm"),
        _table("tpu-inference-fused-moe", f"{_TPU}fused_moe.v1.kernel"),
        _table(
            "tpu-inference-flash-attention",
            f"{_TPU}flash_attention.kernel",
            made="TunableParams",
            problems=_encoder,
            callers=("flash_attention",),
        ),
        Hook(
            module=f"{_V3}kernel",
            path="get_default_block_sizes",
            callers=("ragged_paged_attention",),
            problems=partial(_paged, "vllm_ragged_paged_attention"),
            result=_of_case,
        ),
        Hook(
            module=f"{_V3}kernel_hd64",
            path="get_tuned_block_sizes",
            callers=("ragged_paged_attention_hd64",),
            problems=partial(_paged, "vllm_ragged_paged_attention_64"),
            result=in_order("num_kv_pages_per_block", "num_queries_per_block"),
        ),
    ),
)
SGLANG_JAX = Package(
    name="sglang-jax",
    releases=("0.1.0rc0",),
    hooks=lambda: (
        _table(
            "sglang-jax-quantized-matmul",
            f"{_SGL}quantized_matmul.quantized_matmul_kernels.kernel",
            made="TunedValue",
        ),
        _table("sglang-jax-megablox", f"{_SGL}gmm.megablox_gmm_kernel.gmm"),
    ),
)
