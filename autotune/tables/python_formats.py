"""The tables of JAX, tpu-inference and sglang-jax. Sources: the files that are named, of JAX 0.12,
tpu-inference 0.32 and sglang-jax of November 2026."""

import re
from collections.abc import Iterator
from itertools import islice

from autotune.domain.chip import Chip
from autotune.tables.python_table import Meaning, Named, PythonTable

_VERSIONS = {5: (Chip.V5E, Chip.V5P), 6: (Chip.V6E,), 7: (Chip.V7X,)}
_DEVICES = {
    "TPU v5e": (Chip.V5E,),
    "TPU v5": (Chip.V5P,),
    "TPU v6e": (Chip.V6E,),
    "TPU v7": (Chip.V7X,),
}
_JAX_DEVICES = {  # the first number in the device's kind: v5e and v5p are told the same
    "TPU v5": (Chip.V5E, Chip.V5P),
    "TPU v6": (Chip.V6E,),
    "TPU v7": (Chip.V7X,),
}
_TPU = "tpu_inference.kernels."
_RPA = "num_kv_pages_per_block", "num_queries_per_block"
_SIZES = "TUNED_BLOCK_SIZES"
_MOST_ASKED = 10_000  # 128 heads could have come of fewer than a thousand


def _jax_rpa(key: Named, value: Named) -> Meaning | str:
    pages, rest = divmod(key["max_model_len"], key["page_size"])
    if rest or not pages:
        return f"{key['max_model_len']} keys are not whole pages of {key['page_size']}"
    if key["q_dtype"] != key["kv_dtype"]:
        return f"{key['q_dtype']} queries on {key['kv_dtype']} keys are not in the catalogue"
    problem = {
        "tokens": key["max_num_batched_tokens"],
        "q_heads": key["num_q_heads_per_blk"],
        "kv_heads": key["num_kv_heads_per_blk"],
        "pages": pages,
        "page_size": key["page_size"],
        "head_dim": key["head_dim"],
        "dtype": key["q_dtype"],
    }
    most = {_RPA[0]: pages, _RPA[1]: problem["tokens"]}  # as the lookup cuts them
    return Meaning(problem=problem, axes={n: min(value[n], most[n]) for n in _RPA})


def _jax_rpa_row(problem: Named, axes: Named) -> tuple[Named, Named] | str:
    """Heads of a block are all heads, but where there are many: then the lookup has other keys."""
    if problem["kv_heads"] > 8:
        return "the kernel parts so many heads into blocks: its lookup asks for those of a block"
    return {
        "q_dtype": problem["dtype"],
        "kv_dtype": problem["dtype"],
        "num_q_heads_per_blk": problem["q_heads"],
        "num_kv_heads_per_blk": problem["kv_heads"],
        "head_dim": problem["head_dim"],
        "page_size": problem["page_size"],
        "max_num_batched_tokens": problem["tokens"],
        "max_model_len": problem["pages"] * problem["page_size"],
    }, axes


def _pages_asked(key: Named) -> list[Named]:
    """The lookup takes pages; a length that is no whole number of them is asked for as the next."""
    rest = {name: value for name, value in key.items() if name != "max_model_len"}
    return [{**rest, "pages_per_seq": -(-key["max_model_len"] // key["page_size"])}]


def _quantized(key: Named, value: Named) -> Meaning | str:
    if key["x_q_dtype"] != key["w_q_dtype"]:
        return f"{key['x_q_dtype']} on {key['w_q_dtype']} weights is not in the catalogue"
    if value.get("n_lane_multiplier", 1) != 1:
        return f"the catalogue has no n_lane_multiplier={value['n_lane_multiplier']}"
    problem = {"m": key["n_batch"], "k": key["n_in"], "n": key["n_out"]}
    axes = {name: size for name, size in value.items() if name.endswith("size")}
    return Meaning(problem={**problem, "weights": key["w_q_dtype"]}, axes=axes)


def _quantized_row(problem: Named, axes: Named) -> tuple[Named, Named]:
    sizes = {"n_batch": problem["m"], "n_out": problem["n"], "n_in": problem["k"]}
    types = dict.fromkeys(("x_q_dtype", "w_q_dtype"), problem["weights"])
    return {**sizes, **types}, axes


def _moe(key: Named, value: Named) -> Meaning | str:
    types = {2: "bfloat16", 1: "float32"}
    if key["t_packing"] != key["w_packing"] or key["t_packing"] not in types:
        return "weights of another type than tokens are not in the catalogue"
    names = {
        "tokens": "num_tokens",
        "experts": "num_experts",
        "top_k": "top_k",
        "hidden": "hidden_size",
        "intermediate": "intermediate_size",
        "devices": "ep_size",
    }
    problem = {name: key[theirs] for name, theirs in names.items()}
    return Meaning(problem={**problem, "dtype": types[key["t_packing"]]}, axes=value)


def _moe_row(problem: Named, axes: Named) -> tuple[Named, Named]:
    packing = 2 if problem["dtype"] == "bfloat16" else 1
    return {
        "hidden_size": problem["hidden"],
        "intermediate_size": problem["intermediate"],
        "num_experts": problem["experts"],
        "top_k": problem["top_k"],
        "t_packing": packing,
        "w_packing": packing,
        "num_tokens": problem["tokens"],
        "ep_size": problem["devices"],
    }, axes


def _megablox(key: Named, value: Named) -> Meaning | str:
    if key["lhs_dtype"] != key["rhs_dtype"]:
        return f"{key['lhs_dtype']} on {key['rhs_dtype']} weights is not in the catalogue"
    if key["num_total_groups"] != key["num_current_groups"] or key["quant_block_size"] != key["k"]:
        return "groups elsewhere, or scales of parts of k, are not in the catalogue"
    problem = {**{dim: key[dim] for dim in "mkn"}, "groups": key["num_total_groups"]}
    return Meaning(problem={**problem, "dtype": key["lhs_dtype"]}, axes=value)


def _megablox_row(problem: Named, axes: Named) -> tuple[Named, Named]:
    sizes = {dim: problem[dim] for dim in "mkn"}
    groups = dict.fromkeys(("num_total_groups", "num_current_groups"), problem["groups"])
    types = dict.fromkeys(("lhs_dtype", "rhs_dtype"), problem["dtype"])
    return {**sizes, **groups, **types, "quant_block_size": problem["k"]}, axes


def _flash(key: Named, value: Named) -> Meaning | str:
    if key["q_seq_len"] != key["kv_seq_len"] or key["q_dtype"] != key["kv_dtype"]:
        return "keys of another length or type than queries are not in the catalogue"
    if value["block_b"] != 1:
        return f"the catalogue has no block_b={value['block_b']}"
    problem = {
        "batch": key["batch_size"],
        "heads": key["num_heads"],
        "seq": key["q_seq_len"],
        "head_dim": key["head_dim"],
        "dtype": key["q_dtype"],
    }
    axes = {name: size for name, size in value.items() if name != "block_b"}
    return Meaning(problem=problem, axes=axes)


def _flash_row(problem: Named, axes: Named) -> tuple[Named, Named]:
    lengths = dict.fromkeys(("q_seq_len", "kv_seq_len"), problem["seq"])
    types = dict.fromkeys(("q_dtype", "kv_dtype"), problem["dtype"])
    heads = {"batch_size": problem["batch"], "num_heads": problem["heads"]}
    return {**heads, **lengths, "head_dim": problem["head_dim"], **types}, {**axes, "block_b": 1}


def _rounded_heads(key: Named) -> list[Named]:
    """Heads are padded and rounded up: whatever could have become these."""
    rest = {n: v for n, v in key.items() if n not in ("q_heads", "kv_heads", "max_model_len")}
    rest["pages_per_seq"] = -(-key["max_model_len"] // key["page_size"])

    def below() -> Iterator[Named]:
        for kv in range(key["kv_heads"], 0, -1):
            for group in range(key["q_heads"] // kv, 0, -1):
                yield {**rest, "actual_num_q_heads": kv * group, "actual_num_kv_heads": kv}

    return list(islice(below(), _MOST_ASKED))


_V3_LEVELS = (
    ("device",),
    ("page_size",),
    re.compile(r"q_(?P<q_dtype>\w+?)_kv_(?P<kv_dtype>\w+)"),
    re.compile(r"q_head-(?P<q_heads>\d+)_kv_head-(?P<kv_heads>\d+)_head-(?P<head_dim>\d+)"),
    re.compile(r"max_model_len-(?P<max_model_len>\d+)-sw-(?P<sliding_window>\w+)"),
)


def _rpa_v3(name: str, leaf: str) -> PythonTable:
    module = f"{_TPU}ragged_paged_attention.v3.{leaf}"
    return PythonTable(
        name=name,
        module=module,
        variable=_SIZES,
        levels=_V3_LEVELS,
        value=_RPA,
        device="device",
        chips=_DEVICES,
        absent="pages and queries of a block have no place in the kernel of the catalogue, which "
        "has blocks to fetch and to compute for each of its two calls",
        preimages=_rounded_heads,
        given={"max_num_tokens": 2**30},
    )


def _quantized_table(name: str, module: str) -> PythonTable:
    return PythonTable(
        name=name,
        module=module,
        variable="TUNED_BLOCK_SIZES_RAW",
        levels=(("tpu_version", "n_batch", "n_out", "n_in", "x_q_dtype", "w_q_dtype"),),
        value=("batch_block_size", "out_block_size", "in_block_size", "n_lane_multiplier"),
        optional=1,
        device="tpu_version",
        chips=_VERSIONS,
        kernel="vllm_quantized_matmul",
        meaning=_quantized,
        inverse=_quantized_row,
        looked_up=_SIZES,
    )


_JAX_RPA = "jax.experimental.pallas.ops.tpu.ragged_paged_attention.tuned_block_sizes"
_SGL = "sgl_jax.srt.kernels."
_MOE = "bt", "bf", "bd1", "bd2", "btc", "bfc", "bd1c", "bd2c"
_MLA_KEY = (
    *("case", "max_num_tokens", "actual_num_q_heads", "actual_lkv_dim", "actual_r_dim"),
    *("kv_dtype", "q_dtype", "page_size_per_kv_packing", "kv_packing", "max_num_seqs"),
    *("pages_per_seq", "s_dtype", "soft_cap", "chunk_prefill_size", "sliding_window"),
    "p_same_dtype_as_v",
)
_MLA = (*_RPA, "vmem_limit_bytes", "decode_batch_size", "q_split")
_PARAMS = "tuned_params_mapping", "get_tuned_params"

PYTHON_FORMATS = (
    PythonTable(
        name="jax-rpa",
        module=_JAX_RPA,
        variable=_SIZES,
        levels=(
            ("device",),
            (
                *("q_dtype", "kv_dtype", "num_q_heads_per_blk", "num_kv_heads_per_blk"),
                *("head_dim", "page_size", "max_num_batched_tokens", "max_model_len"),
            ),
        ),
        value=_RPA,
        device="device",
        chips=_JAX_DEVICES,
        kernel="jax_ragged_paged_attention",
        meaning=_jax_rpa,
        inverse=_jax_rpa_row,
        preimages=_pages_asked,
    ),
    _quantized_table("tpu-inference-quantized-matmul", _TPU + "quantized_matmul.tuned_block_sizes"),
    _rpa_v3("tpu-inference-rpa", "tuned_block_sizes"),
    _rpa_v3("tpu-inference-rpa-hd64", "tuned_block_sizes_hd64"),
    PythonTable(
        name="tpu-inference-fused-moe",
        module=_TPU + "fused_moe.v1.tuned_block_sizes",
        variable=_SIZES,
        levels=(
            (
                *("hidden_size", "intermediate_size", "num_experts", "top_k"),
                *("t_packing", "w_packing", "num_tokens", "ep_size"),
            ),
        ),
        value=_MOE,
        kernel="vllm_fused_moe",
        meaning=_moe,
        inverse=_moe_row,
    ),
    PythonTable(
        name="tpu-inference-megablox",
        module=_TPU + "megablox.tuned_block_sizes",
        variable=_SIZES,
        levels=(
            (
                *("m", "k", "n", "num_total_groups", "num_current_groups"),
                *("lhs_dtype", "rhs_dtype", "quant_block_size"),
            ),
        ),
        value=("tile_m", "tile_k", "tile_n"),
        kernel="vllm_gmm",
        meaning=_megablox,
        inverse=_megablox_row,
    ),
    PythonTable(
        name="tpu-inference-mla",
        module=_TPU + "mla.v2.tuned_params",
        variable=_PARAMS[0],
        levels=(_MLA_KEY,),
        value=_MLA,
        key_class="TuningKey",
        value_class="TunableParams",
        function=_PARAMS[1],
    ),
    PythonTable(
        name="tpu-inference-flash-attention",
        module=_TPU + "flash_attention.tuned_params",
        variable=_PARAMS[0],
        levels=(
            (
                *("batch_size", "num_heads", "q_seq_len", "kv_seq_len", "head_dim"),
                *("q_dtype", "kv_dtype"),
            ),
        ),
        value=("block_q", "block_k_major", "block_k", "block_b"),
        kernel="vllm_flash_attention",
        meaning=_flash,
        inverse=_flash_row,
        key_class="TuningKey",
        value_class="TunableParams",
        function=_PARAMS[1],
    ),
    PythonTable(
        name="tpu-inference-all-gather-matmul",
        module=_TPU + "collectives.all_gather_matmul_tuned_block_sizes",
        variable=_SIZES,
        levels=(("tpu_version", "m", "n", "k", "dtype_name", "tp_size"),),
        value=("bn", "bk"),
        device="tpu_version",
        chips=_VERSIONS,
    ),
    PythonTable(
        name="sglang-jax-rpa",
        module=_SGL + "ragged_paged_attention.tuned_block_sizes",
        variable=_SIZES,
        levels=(
            ("device",),
            (
                *("q_dtype", "kv_dtype", "actual_num_q_heads", "actual_num_kv_heads"),
                *("head_dim", "page_size", "max_num_tokens"),
            ),
        ),
        value=_RPA,
        device="device",
        chips=_DEVICES,
        given={"pages_per_seq": 2**30},
    ),
    _quantized_table(
        "sglang-jax-quantized-matmul",
        _SGL + "quantized_matmul.quantized_matmul_kernels.tuned_block_sizes",
    ),
)
