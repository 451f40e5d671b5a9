"""vLLM's multi-head latent attention, version 2 (DeepSeek's): the cache holds one row for
all heads, with the rotated part of the key beside it. A call serves the sequences that decode in
batches, one those that are left over, one all others: their times add up.

``scores``: the type that softmax is computed in. ``kv_packing``: how many tokens lie side by side
in the cache, 0 for as many as a word has. The package serves with bfloat16 and 32.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autotune import Array, Axis, Config, Kernel, Option, Problem
from autotune_kernels.from_tpu_inference import checked
from autotune_kernels.from_tpu_inference import paged_attention as paged
from autotune_kernels.parts import arrays, dividing, not_multiple, part

_KERNEL = "tpu_inference.kernels.mla.v2.kernel"
_PLAIN = "tpu_inference.kernels.mla.v1.kernel"


def _inputs(problem: Problem) -> list[Array]:
    tokens, heads, latent, rope = (problem[d] for d in ("tokens", "heads", "latent", "rope"))
    module, dtype = part(_KERNEL), problem.dtype
    width = module.align_to(latent, 128) + module.align_to(rope, 128)
    pages = problem["seqs"] * paged.pages_per_seq(problem)
    shape = pages, problem["page_size"], width, jnp.dtype(dtype), _packing(problem)
    cache = module.get_kv_cache_shape(*shape)
    shapes = {
        "ql_nope": (heads, tokens, latent),
        "q_pe": (tokens, heads, rope),
        "new_kv_c": (tokens, latent),
        "new_k_pe": (tokens, rope),
    }
    return [
        *arrays(problem, **shapes),
        Array(name="cache_kv", shape=tuple(cache), dtype=dtype, row_major=True, donated=True),
        *paged.integer_inputs(problem),
    ]


def _scores(problem: Problem) -> Any:
    return jnp.dtype(str(problem.option("scores")))


def _packing(problem: Problem) -> int:
    return int(problem.option("kv_packing")) or 4 // jnp.dtype(problem.dtype).itemsize


def _scale(problem: Problem) -> float:
    return float((problem["latent"] + problem["rope"]) ** -0.5)


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    pages, queries = config["mixed_pages"], config["mixed_queries"]
    return partial(
        part(_KERNEL).mla_ragged_paged_attention,
        sm_scale=_scale(problem),
        num_kv_pages_per_block=(config["decode_pages"], pages, pages),
        num_queries_per_block=(1, queries, queries),
        decode_batch_size=config["decode_batch_size"],
        mixed_q_split=config["mixed_q_split"],
        s_dtype=_scores(problem),
    )


def _reference(problem: Problem) -> Callable[..., Any]:
    """In float32: on a CPU version 1's own sums the values in bfloat16, and is off by 1.9 %. The
    cache is updated by that."""
    integers, latent = paged.page_integers(problem), problem["latent"]
    first = part(_KERNEL).align_to(latent, 128)
    pages = integers["page_indices"].reshape(problem["seqs"], -1)
    starts, lengths = integers["cu_q_lens"][:-1], np.diff(integers["cu_q_lens"])
    of_sequence = partial(_attention, scale=_scale(problem), dtype=_scores(problem))
    each = jax.vmap(of_sequence, (1, 0, 0, 0), 1)

    def attend(q: Any, q_pe: Any, kv: Any, k_pe: Any, cache: Any, *_: Any) -> Any:
        known = {name: jnp.asarray(values) for name, values in integers.items()}
        updated = part(_PLAIN).update_kv_cache(kv, k_pe, cache, **known)
        output = jnp.zeros(q.shape, q.dtype)
        for length in np.unique(lengths):  # sequences of as many new tokens at once
            which = lengths == length
            tokens = starts[which][:, None] + np.arange(length)
            rows = updated[pages[which]].reshape(len(tokens), -1, updated.shape[-1])
            rows = rows[:, : problem["kv_len"]]
            given = (q[:, tokens], q_pe[tokens], rows[..., :latent], rows[..., first:])
            output = output.at[:, tokens].set(each(*given).astype(q.dtype))
        return output, updated

    return attend


def _attention(q: Any, q_pe: Any, latents: Any, rotated: Any, *, scale: float, dtype: Any) -> Any:
    """Of the last tokens of one sequence to all of it."""
    q, q_pe, latents, rotated = (x.astype(jnp.float32) for x in (q, q_pe, latents, rotated))
    logits = jnp.einsum("hqd,kd->hqk", q, latents)
    logits += jnp.einsum("qhr,kr->hqk", q_pe, rotated[:, : q_pe.shape[-1]])
    count, length = logits.shape[1:]
    seen = jnp.arange(length) <= jnp.arange(length - count, length)[:, None]
    weights = jax.nn.softmax(jnp.where(seen, scale * logits, -jnp.inf).astype(dtype))
    return jnp.einsum("hqk,kd->hqd", weights, latents)


def _tuned(problem: Problem, _chip: str) -> dict[str, int]:
    """Its own table, or its defaults for what is not in it; no larger than the problem."""
    module = part("tpu_inference.kernels.mla.v2.tuned_params")
    packing = _packing(problem)
    decode, mixed = (
        module.get_tuned_params(
            module.TuningKey(
                case=case,
                max_num_tokens=problem["tokens"],
                actual_num_q_heads=problem["heads"],
                actual_lkv_dim=problem["latent"],
                actual_r_dim=problem["rope"],
                kv_dtype=problem.dtype,
                q_dtype=problem.dtype,
                page_size_per_kv_packing=problem["page_size"] // packing,
                kv_packing=packing,
                max_num_seqs=problem["seqs"],
                pages_per_seq=paged.pages_per_seq(problem),
                s_dtype=str(problem.option("scores")),
            )
        )
        for case in ("batched_decode", "mixed")
    )
    return {
        "decode_pages": min(decode.num_kv_pages_per_block, paged.pages_per_seq(problem)),
        "decode_batch_size": min(decode.decode_batch_size, problem["seqs"]),
        "mixed_pages": min(mixed.num_kv_pages_per_block, paged.pages_per_seq(problem)),
        "mixed_queries": mixed.num_queries_per_block,
        "mixed_q_split": mixed.q_split,
    }


def _sizes(
    q: paged.Shape, q_pe: paged.Shape, _kv: paged.Shape, _k_pe: paged.Shape, *given: paged.Shape
) -> dict[str, int]:
    (heads, tokens, latent), ((_, rows, packing, _), lengths, table, *_) = q, given
    page = (0, rows * packing)
    sizes = paged.sizes((tokens, heads, latent), q_pe, (), page, lengths, table)
    return {**sizes, "latent": latent, "rope": q_pe[-1]}


def _check(problem: Problem) -> str | None:
    return not_multiple(problem, "page_size", _packing(problem)) or paged.check_batch(problem)


def _pages(problem: Problem) -> list[int]:
    return [n for n in (1, 2, 3, 4, 8, 16, 32) if n <= paged.pages_per_seq(problem)]


def _batches(problem: Problem) -> list[int]:
    return [n for n in (1, 2, 4, 8, 16) if n <= problem["seqs"]]


def _of_mixed(choices: Callable[[Problem], list[int]]) -> Callable[[Problem], list[int]]:
    """None but the default where no sequence is left over from batches that decode."""

    def of_problem(problem: Problem) -> list[int]:
        is_even = all(problem["seqs"] % size == 0 for size in _batches(problem))
        return [] if is_even and problem.option("batch") == "decode" else choices(problem)

    return of_problem


_AXES: dict[str, Callable[[Problem], list[int]]] = {
    "decode_pages": _pages,
    "decode_batch_size": _batches,
    "mixed_pages": _of_mixed(_pages),
    "mixed_queries": _of_mixed(paged.q_blocks),
    "mixed_q_split": _of_mixed(lambda _: [1, 2, 4, 8, 16]),
}

KERNEL = Kernel(
    name="vllm_latent_attention",
    dims=("seqs", "tokens", "kv_len", "page_size", "heads", "latent", "rope"),
    dtypes=("bfloat16", "float32"),
    options=(
        paged.BATCH,
        Option(name="scores", choices=("float32", "bfloat16"), default="float32"),
        Option(name="kv_packing", choices=(0, 32), default=0),
    ),
    axes=tuple(Axis(name=name, choices=choices) for name, choices in _AXES.items()),
    default=lambda _: dict.fromkeys(_AXES, 1),
    default_on=_tuned,
    inputs=_inputs,
    build=_build,
    reference=_reference,
    check=checked(_check),
    constraint=dividing({"mixed_q_split": "mixed_queries"}),
    reduced=lambda problem: paged.short_batch(problem).with_dims(heads=min(16, problem["heads"])),
    sizes=_sizes,
    doc="vLLM's multi-head latent attention v2 (tpu-inference), with its update of the cache",
)
