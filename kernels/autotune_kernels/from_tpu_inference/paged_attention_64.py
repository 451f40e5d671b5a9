"""vLLM's ragged paged attention, version 3, for heads of 64: keys and values of a head lie side by
side in 128 lanes, and one call serves the sequences that decode and all others. With ``sinks`` each
head has a logit more, without a value."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp

from autotune import Array, Config, Kernel, Problem
from autotune_kernels.from_tpu_inference import checked
from autotune_kernels.from_tpu_inference import paged_attention as paged
from autotune_kernels.parts import part, telling, told

_V3 = "tpu_inference.kernels.ragged_paged_attention.v3"
_KERNEL, _TUNED = f"{_V3}.kernel_hd64", f"{_V3}.tuned_block_sizes_hd64"
_HEAD_DIM = 64
_BLOCKS = ("num_kv_pages_per_block", "num_queries_per_block")


def _inputs(problem: Problem) -> list[Array]:
    return [*paged.paged_inputs(_KERNEL, problem, _HEAD_DIM), *paged.sinks(problem)]


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    options = {name: config[name] for name in _BLOCKS} | paged.seen(problem, _HEAD_DIM)
    function = partial(part(_KERNEL).ragged_paged_attention_hd64, **options)
    return telling(function, part(_TUNED))


def _reference(problem: Problem) -> Callable[..., Any]:
    function = part(_KERNEL).ref_ragged_paged_attention_hd64
    return paged.plain_attention(problem, partial(function, **paged.seen(problem, _HEAD_DIM)))


def _tuned(problem: Problem, chip: str) -> dict[str, int]:
    """Its own table, or its rule for what is not in it."""
    module, dtype = part(_TUNED), jnp.dtype(problem.dtype)
    shape = (problem["heads"], problem["kv_heads"], _HEAD_DIM, problem["page_size"])
    with told(module, chip=chip):
        sizes = module.get_tuned_block_sizes(
            dtype,
            dtype,
            *shape,
            problem["tokens"],
            paged.pages_per_seq(problem),
            paged.window(problem),
        )
    return dict(zip(_BLOCKS, map(int, sizes), strict=True))


def _page_counts(problem: Problem) -> list[int]:
    return [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n <= paged.pages_per_seq(problem)]


KERNEL = Kernel(
    name="vllm_ragged_paged_attention_64",
    dims=("seqs", "tokens", "kv_len", "page_size", "heads", "kv_heads"),
    dtypes=("bfloat16", "float32"),
    options=(paged.BATCH, *paged.SEEN, paged.SINKS),
    axes=(
        paged.block_axis(_BLOCKS[0], _page_counts, "page_size", of_keys=True),
        paged.block_axis(_BLOCKS[1], paged.q_blocks, of_keys=False),
    ),
    default=lambda _: dict.fromkeys(_BLOCKS, 1),
    default_on=_tuned,
    inputs=_inputs,
    build=_build,
    reference=_reference,
    check=checked(paged.check),
    reduced=paged.reduced,
    sizes=paged.sizes,
    doc="vLLM's ragged paged attention v3 for heads of 64 (tpu-inference)",
)
