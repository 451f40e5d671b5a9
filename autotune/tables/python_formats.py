"""The tables of JAX, tpu-inference and sglang-jax. Sources: the files that are named, of JAX 0.12,
tpu-inference 0.32 and sglang-jax of November 2026."""

import re
from itertools import islice

from autotune.domain.key import Chip
from autotune.tables.python_table import FieldNames, Meaning, Named, PythonTable

_VERSIONS = {5: (Chip.V5E, Chip.V5P), 6: (Chip.V6E,), 7: (Chip.V7X,)}
_DEVICES = {
    "TPU v5e": (Chip.V5E,),
    "TPU v5": (Chip.V5P,),
    "TPU v6e": (Chip.V6E,),
    "TPU v7": (Chip.V7X,),
}
_JAX_DEVICES = {  # the first number in the device's kind: v5e and v5p have the same
    "TPU v5": (Chip.V5E, Chip.V5P),
    "TPU v6": (Chip.V6E,),
    "TPU v7": (Chip.V7X,),
}
_TPU = "tpu_inference.kernels."
_RPA = "num_kv_pages_per_block", "num_queries_per_block"
_SIZES = "TUNED_BLOCK_SIZES"
_MOST_ASKED = 10_000  # 128 heads could have come of fewer than a thousand


class _PagedBlocks:
    """A ``Vocabulary``: tokens and keys are cut to what the problem has, as the lookup does."""

    def problem(self, key: Named, value: Named) -> Meaning | str:
        pages, rest = divmod(key["max_model_len"], key["page_size"])
        if rest or not pages:
            return f"{key['max_model_len']} keys are not whole pages of {key['page_size']}"
        meaning = _PAGED.problem(key, value)
        if isinstance(meaning, str):
            return meaning
        most = {_RPA[0]: pages, _RPA[1]: key["max_num_batched_tokens"]}
        axes = {name: min(value[name], most[name]) for name in _RPA}
        return Meaning(problem={**meaning.problem, "pages": pages}, axes=axes)

    def row(self, problem: Named, axes: Named) -> tuple[Named, Named] | str:
        """Heads of a block are all heads, but where there are many: then the lookup has other
        keys."""
        if problem["kv_heads"] > 8:
            return (
                "the kernel parts so many heads into blocks: its lookup asks for those of a block"
            )
        key, value = _PAGED.row(problem, axes)
        return {**key, "max_model_len": problem["pages"] * problem["page_size"]}, value


_PAGED = FieldNames(
    fields={
        "tokens": ("max_num_batched_tokens",),
        "q_heads": ("num_q_heads_per_blk",),
        "kv_heads": ("num_kv_heads_per_blk",),
        "page_size": ("page_size",),
        "head_dim": ("head_dim",),
        "dtype": ("q_dtype", "kv_dtype"),
    }
)
_QUANTIZED = FieldNames(
    fields={
        "m": ("n_batch",),
        "k": ("n_in",),
        "n": ("n_out",),
        "weights": ("x_q_dtype", "w_q_dtype"),
    },
    fixed={"n_lane_multiplier": 1},
)
_EXPERTS = FieldNames(
    fields={
        "tokens": ("num_tokens",),
        "experts": ("num_experts",),
        "top_k": ("top_k",),
        "hidden": ("hidden_size",),
        "intermediate": ("intermediate_size",),
        "devices": ("ep_size",),
        "dtype": ("t_packing", "w_packing"),
    },
    dtypes={2: "bfloat16", 1: "float32"},
)
_GROUPED = FieldNames(
    fields={
        "m": ("m",),
        "k": ("k", "quant_block_size"),
        "n": ("n",),
        "groups": ("num_total_groups", "num_current_groups"),
        "dtype": ("lhs_dtype", "rhs_dtype"),
    }
)
_ATTENTION = FieldNames(
    fields={
        "batch": ("batch_size",),
        "heads": ("num_heads",),
        "seq": ("q_seq_len", "kv_seq_len"),
        "head_dim": ("head_dim",),
        "dtype": ("q_dtype", "kv_dtype"),
    },
    fixed={"block_b": 1},
)


def _pages_asked(key: Named) -> list[Named]:
    """The lookup takes pages; a length that is no whole number of them is asked for as the next."""
    rest = {name: value for name, value in key.items() if name != "max_model_len"}
    return [{**rest, "pages_per_seq": -(-key["max_model_len"] // key["page_size"])}]


def _rounded_heads(key: Named) -> list[Named]:
    """Heads are padded and rounded up: whatever could have become these."""
    (paged,) = _pages_asked(key)
    rest = {name: value for name, value in paged.items() if name not in ("q_heads", "kv_heads")}
    below = (
        {**rest, "actual_num_q_heads": kv * group, "actual_num_kv_heads": kv}
        for kv in range(key["kv_heads"], 0, -1)
        for group in range(key["q_heads"] // kv, 0, -1)
    )
    return list(islice(below, _MOST_ASKED))


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
        vocabulary=_QUANTIZED,
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
        vocabulary=_PagedBlocks(),
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
        vocabulary=_EXPERTS,
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
        vocabulary=_GROUPED,
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
        vocabulary=_ATTENTION,
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
