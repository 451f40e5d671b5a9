"""sglang-jax's ragged paged attention, version 3: vLLM's, with a page table of its own form and a
table of block sizes. It makes a call for the sequences that decode and one for all others. A batch
is of one kind here, as a row of its table is: the other call has nothing to do, and its own blocks.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from autotune import Array, Config, Kernel, Option, Problem
from autotune_kernels.from_sglang import checked
from autotune_kernels.from_tpu_inference import paged_attention as vllm
from autotune_kernels.parts import dividing, part, telling, told

_PACKAGE = "sgl_jax.srt.kernels.ragged_paged_attention"
_KERNEL, _TABLE = f"{_PACKAGE}.ragged_paged_attention_v3", f"{_PACKAGE}.tuned_block_sizes_v3"
_BLOCKS = ("bq_sz", "bkv_sz", "bq_csz", "bkv_csz")
_STAGES = {"decode": "d", "prefill": "m"}


def _modules() -> list[Any]:
    """Those that ask which TPU it is."""
    return [part(name) for name in (_KERNEL, _TABLE, f"{_PACKAGE}.tuned_block_sizes")]


def _stage(problem: Problem) -> str:
    return _STAGES[str(problem.option("batch"))]


def _inputs(problem: Problem) -> list[Array]:
    *arrays, distribution = vllm.paged_inputs(_KERNEL, problem, problem["head_dim"])
    pages = vllm.pages_per_seq(problem) * problem["page_size"]
    starts = np.arange(problem["seqs"] + 1, dtype=np.int32) * pages
    values = partial(np.asarray, starts)
    return [
        *arrays,
        Array(name="cu_kv_lens", shape=starts.shape, dtype="int32", values=values),
        distribution,
        *vllm.sinks(problem),
    ]


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    function = partial(
        part(_KERNEL).ragged_paged_attention,
        **vllm.seen(problem, problem["head_dim"]),
        **{f"{_stage(problem)}_block_sizes": tuple(config[name] for name in _BLOCKS)},
    )

    def attend(*given: Any) -> Any:
        return function(*given[:9], None, *given[9:])  # no mask

    return telling(attend, *_modules())


def _reference(problem: Problem) -> Callable[..., Any]:
    """The package's own, which wants its integers as numbers, after an update of the cache."""
    integers = vllm.page_integers(problem)
    table = integers["page_indices"].reshape(problem["seqs"], -1)
    counts = np.diff(integers["cu_q_lens"])
    owner = np.repeat(np.arange(problem["seqs"]), counts)
    ahead = integers["cu_q_lens"][1:][owner] - np.arange(problem["tokens"])
    page, row = np.divmod(integers["kv_lens"][owner] - ahead, problem["page_size"])
    options = vllm.seen(problem, problem["head_dim"])
    plain = partial(part(_KERNEL).ref_ragged_paged_attention, **options)

    def attend(q: Any, k: Any, v: Any, cache: Any, *given: Any) -> Any:
        dim = q.shape[-1]
        pages = cache.reshape(*cache.shape[:2], k.shape[1], 2, -1)
        pages = pages.at[table[owner, page], row, ..., :dim].set(jnp.stack([k, v], axis=2))
        keys, values = (pages[..., part, :dim] for part in range(2))
        lengths = integers["kv_lens"], table, integers["cu_q_lens"], integers["distribution"][2:]
        output = plain(q, keys, values, *lengths, attention_sink=next(iter(given[5:]), None))
        return output.astype(q.dtype), pages.reshape(cache.shape)

    return attend


def _tuned(problem: Problem, chip: str) -> dict[str, int]:
    """Its own table, or its formulas for what is not in it."""
    module, dtype, stage = part(_KERNEL), jnp.dtype(problem.dtype), _stage(problem)
    shape = (problem["heads"], problem["kv_heads"], problem["head_dim"], problem["page_size"])
    given = (dtype, dtype, *shape, problem["tokens"])
    case = module.RpaCase.DECODE if stage == "d" else module.RpaCase.MIXED
    with told(*_modules(), chip=chip):
        window = {"sliding_window": vllm.window(problem)}
        sizes = part(_TABLE).get_tuned_block_sizes_v3(stage, *given, **window)
        if sizes is not None and chip in ("v6e", "v7x"):
            return dict(zip(_BLOCKS, map(int, sizes), strict=True))
        pages = problem["seqs"], vllm.pages_per_seq(problem)
        limit = {"vmem_limit_bytes": module.get_vmem_limit()}
        sizes = module.get_default_block_sizes(*given, *pages, case=case, **limit, **window)
    return {name: int(sizes[name]) for name in _BLOCKS}


def _choices(name: str) -> Callable[[Problem], list[int]]:
    if "bkv" in name:
        return vllm.kv_blocks
    return lambda problem: [1] if _stage(problem) == "d" else vllm.q_blocks(problem)


def _check(problem: Problem) -> str | None:
    if problem.option("batch") == "prefill" and problem["tokens"] <= problem["seqs"]:
        return "where sequences are prefilled there are more tokens than sequences"
    return vllm.check(problem)


def _sizes(*shapes: vllm.Shape) -> dict[str, int]:
    return vllm.sizes(*shapes[:6])


KERNEL = Kernel(
    name="sglang_ragged_paged_attention",
    dims=("seqs", "tokens", "kv_len", "page_size", "heads", "kv_heads", "head_dim"),
    dtypes=("bfloat16", "float32"),
    options=(
        Option(name="batch", choices=tuple(_STAGES), default="decode"),
        *vllm.SEEN,
        vllm.SINKS,
    ),
    axes=tuple(vllm.block_axis(n, _choices(n), of_keys="bkv" in n) for n in _BLOCKS),
    default=lambda problem: {n: 1 if "bq" in n else problem["page_size"] for n in _BLOCKS},
    default_on=_tuned,
    inputs=_inputs,
    build=_build,
    reference=_reference,
    check=checked(_check),
    constraint=dividing({"bq_csz": "bq_sz", "bkv_csz": "bkv_sz"}),
    reduced=vllm.reduced,
    sizes=_sizes,
    doc="sglang-jax's ragged paged attention v3, with its update of the cache",
)
