"""vLLM's ragged paged attention, version 3: it updates the paged cache of keys and values and
attends to it. It makes a call for the sequences that decode and one for all others: their blocks
are chosen apart, their times add up.

What it reads is in the page tables, so these are known: sequences of the same length whose pages
lie in random order. Those of verification are ``ragged``: some end at a border of two or three
blocks, some within a page, and the last one is empty.

A token sees all before it or, with a ``window``, the last so many, itself among them.
``soft_cap``: logits are kept within 50 by a tanh; another cap is the same problem.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from autotune import Array, Axis, Config, Kernel, Option, Problem
from autotune_kernels.from_jax.splash import SOFT_CAP, flag
from autotune_kernels.from_tpu_inference import checked
from autotune_kernels.parts import arrays, dividing, not_multiple, part, telling, told

_KERNEL = "tpu_inference.kernels.ragged_paged_attention.v3.kernel"
_PARTS = ("bq_sz", "bkv_sz", "bq_csz", "bkv_csz")
_DECODE, _PREFILL, _MIXED = "decode", "prefill", "mixed"
Shape = tuple[int, ...]
BATCH = Option(name="batch", choices=(_DECODE, _PREFILL, _MIXED), default=_DECODE)
SEEN = (
    Option(name="window", choices=(0, 128, 512, 1024, 2048, 4096, 8192), default=0),
    flag("soft_cap"),
)
SINKS = flag("sinks")
_RAGGED, _LONG = ("lengths", "ragged"), ("lengths", "ragged and long")
_INT16 = 2**15 - 1  # a longest sequence of so many keys has masks of 16 bits


def _is_ragged(problem: Problem) -> bool:
    return _RAGGED in problem.options or _LONG in problem.options


def _decoding(problem: Problem) -> int:
    seqs, batch = problem["seqs"] - _is_ragged(problem), problem.option("batch")
    return {_DECODE: seqs, _PREFILL: 0, _MIXED: seqs // 2}[str(batch)]


def _tokens_of(problem: Problem) -> Any:
    """New tokens of each sequence: one where it decodes, else its share of the others; none of an
    empty one."""
    decoding, empty = _decoding(problem), int(_is_ragged(problem))
    count, tokens = problem["seqs"] - empty - decoding, problem["tokens"] - decoding
    others = np.diff(np.arange(count + 1) * tokens // max(1, count)).tolist()
    if empty:  # three whole blocks of a power of two, a part of one, single ones, and the rest
        block = 1 << (tokens // 5).bit_length() >> 1
        others = [max(1, 3 * block), max(1, block - 3), *[1] * count][: max(0, count - 1)]
        others = [*others, tokens - sum(others)][:count]
    return np.array([*[1] * decoding, *others, *[0] * empty], np.int32)


def _distribution(problem: Problem) -> Any:
    """Sequences that end the decoding ones, the prefilling ones and all."""
    decoding, tokens = _decoding(problem), _tokens_of(problem)
    return np.array([decoding, decoding, np.count_nonzero(tokens)], np.int32)


def _lengths(problem: Problem) -> Any:
    tokens, longest = _tokens_of(problem), problem["kv_len"]
    lengths = np.full(problem["seqs"], longest)
    if _is_ragged(problem):
        parts = [longest, longest - 5, 1, 2 * longest // 3, longest // 2]
        if problem["seqs"] > 6:  # see `window`
            parts.insert(4, longest // 2 + longest // 3)
        lengths = np.where(tokens > 0, np.maximum(np.resize(parts, len(tokens)), tokens), 0)
    return lengths.astype(np.int32)


def pages_per_seq(problem: Problem) -> int:
    return -(-problem["kv_len"] // problem["page_size"])


def _page_table(problem: Problem) -> Any:
    count = problem["seqs"] * pages_per_seq(problem)
    return np.random.default_rng(0).permutation(count).astype(np.int32)


def page_integers(problem: Problem) -> dict[str, Any]:
    ends = np.concatenate([[0], np.cumsum(_tokens_of(problem))]).astype(np.int32)
    return {
        "kv_lens": _lengths(problem),
        "page_indices": _page_table(problem),
        "cu_q_lens": ends,
        "distribution": _distribution(problem),
    }


def paged_inputs(module: str, problem: Problem, dim: int) -> list[Array]:
    """Queries, keys and values of ``dim`` and the cache as the module has it, then the integers."""
    tokens, dtype = problem["tokens"], problem.dtype
    pages = problem["seqs"] * pages_per_seq(problem)
    cache = part(module).get_kv_cache_shape(
        pages, problem["page_size"], problem["kv_heads"], dim, jnp.dtype(dtype)
    )
    heads = {"q": problem["heads"], "k": problem["kv_heads"], "v": problem["kv_heads"]}
    return [
        *arrays(problem, **{name: (tokens, count, dim) for name, count in heads.items()}),
        Array(name="kv_cache", shape=tuple(cache), dtype=dtype, row_major=True, donated=True),
        *integer_inputs(problem),
    ]


def sinks(problem: Problem) -> list[Array]:
    """Large enough that a sink which is left out, or counts twice, is no rounding."""
    each = Array(name="attention_sink", shape=(problem["heads"],), dtype="float32", std=3.0)
    return [each] if problem.option("sinks") else []


def integer_inputs(problem: Problem) -> list[Array]:
    return [
        Array(name=name, shape=values.shape, dtype="int32", values=partial(np.asarray, values))
        for name, values in page_integers(problem).items()
    ]


def window(problem: Problem) -> int | None:
    """That of a ragged batch of two or three blocks begins in the last row of one, for the last
    token of some sequence: a kernel that begins a token too late loses it."""
    size = int(problem.option("window"))
    return (problem["kv_len"] // 3 + 1 if size and _is_ragged(problem) else size) or None


def seen(problem: Problem, head_dim: int) -> dict[str, Any]:
    """What a token sees, and how logits are scaled, in the words of the packages."""
    cap = SOFT_CAP if problem.option("soft_cap") else None
    return {"sm_scale": head_dim**-0.5, "sliding_window": window(problem), "soft_cap": cap}


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    module = part(_KERNEL)
    blocks = {
        f"{case}_block_sizes": tuple(config[f"{case}_{name}"] for name in _PARTS) for case in "dm"
    }
    function = partial(
        module.ragged_paged_attention,
        **seen(problem, problem["head_dim"]),
        p_block_sizes=blocks["m_block_sizes"],
        **blocks,
    )
    return telling(function, module)


def _reference(problem: Problem) -> Callable[..., Any]:
    """The package's own."""
    function = part(_KERNEL).ref_ragged_paged_attention
    return plain_attention(problem, partial(function, **seen(problem, problem["head_dim"])))


def plain_attention(problem: Problem, function: Callable[..., Any]) -> Callable[..., Any]:
    """A reference of the package, which wants its integers as numbers."""
    integers = page_integers(problem).values()

    def attend(q: Any, k: Any, v: Any, cache: Any, *given: Any) -> Any:
        output, cache = function(q, k, v, cache, *integers, *given[len(integers) :])
        return output.astype(q.dtype), cache

    return attend


def _heuristics(problem: Problem, chip: str) -> dict[str, int]:
    """Its own formulas for the TPU that the code is told of; for few tokens they give a larger
    block to compute than to fetch, which it refuses: that is cut."""
    module, dtype = part(_KERNEL), jnp.dtype(problem.dtype)
    shape = (problem["heads"], problem["kv_heads"], problem["head_dim"], problem["page_size"])
    blocks: dict[str, int] = {}
    with told(module, chip=chip):
        for case, kind in (("d", module.RpaCase.DECODE), ("m", module.RpaCase.MIXED)):
            sizes = module.get_default_block_sizes(
                dtype,
                dtype,
                *shape,
                problem["tokens"],
                problem["seqs"],
                pages_per_seq(problem),
                case=kind,
            )
            sizes |= {f"{b}_csz": min(sizes[f"{b}_csz"], sizes[f"{b}_sz"]) for b in ("bq", "bkv")}
            blocks |= {f"{case}_{name}": int(sizes[name]) for name in _PARTS}
    return blocks


def kv_blocks(problem: Problem) -> list[int]:
    """Whole pages."""
    page, most = problem["page_size"], pages_per_seq(problem)
    return [page * count for count in (1, 2, 4, 8, 16, 32, 64, 128) if count <= most]


def q_blocks(problem: Problem) -> list[int]:
    return [size for size in (1, 8, 16, 32, 64, 128, 256) if size <= problem["tokens"]]


def _choices(name: str) -> Callable[[Problem], list[int]]:
    """Of the call that has nothing to do none but the default."""
    idle = _PREFILL if name.startswith("d") else _DECODE

    def choices(problem: Problem) -> list[int]:
        if problem.option("batch") == idle:
            return []
        if "bkv" in name:
            return kv_blocks(problem)
        return q_blocks(problem) if name.startswith("m") else [1]

    return choices


def _least(name: str, problem: Problem) -> int:
    return 1 if "bq" in name else problem["page_size"]


_AXES = tuple(f"{case}_{name}" for case in "dm" for name in _PARTS)


def sizes(
    q: Shape, k: Shape, _v: Shape, cache: Shape, lengths: Shape, table: Shape, *_: Shape
) -> dict[str, int]:
    (seqs,), (pages,), page_size, (tokens, heads, head_dim) = lengths, table, cache[1], q
    return {
        "seqs": seqs,
        "tokens": tokens,
        "kv_len": pages // seqs * page_size,
        "page_size": page_size,
        "heads": heads,
        "kv_heads": k[1],
        "head_dim": head_dim,
    }


def check(problem: Problem) -> str | None:
    return not_multiple(problem, "heads", "kv_heads") or check_batch(problem)


def check_batch(problem: Problem) -> str | None:
    if problem["tokens"] < problem["seqs"] - _is_ragged(problem):
        return f"tokens={problem['tokens']} must be at least seqs={problem['seqs']}"
    if problem.option("batch") == _DECODE and problem["tokens"] != _decoding(problem):
        return "where all sequences decode there are as many tokens as sequences"
    if _LONG in problem.options and problem["kv_len"] <= _INT16:
        return "a long batch has masks of 32 bits"
    long = int(max(_tokens_of(problem))) > problem["kv_len"]
    return "a sequence has more new tokens than kv_len" if long else None


def reduced(problem: Problem) -> Problem:
    """Five sequences of different lengths, six with a window, and an empty one, with two heads of
    keys."""
    most = 6 if problem.option("window") else 5
    kv_heads, seqs = min(2, problem["kv_heads"]), min(most, problem["seqs"])
    heads = kv_heads * (problem["heads"] // problem["kv_heads"])
    tokens = seqs if problem.option("batch") == _DECODE else min(problem["tokens"], 16 * seqs)
    dims = {"seqs": seqs + 1, "tokens": tokens, "heads": heads, "kv_heads": kv_heads}
    kind = _LONG if problem["kv_len"] > _INT16 else _RAGGED
    return replace(problem.with_dims(**dims), options=(*problem.options, kind))


def short_batch(problem: Problem) -> Problem:
    """Four sequences of a few pages."""
    seqs = min(4, problem["seqs"])
    pages = min(4, pages_per_seq(problem))
    tokens = seqs if problem.option("batch") == _DECODE else min(problem["tokens"], 16 * seqs)
    kv_len = min(problem["kv_len"], pages * problem["page_size"])
    return problem.with_dims(seqs=seqs, tokens=tokens, kv_len=kv_len)


def block_axis(
    name: str, choices: Callable[[Problem], list[int]], unit: int | str = 1, *, of_keys: bool
) -> Axis:
    """Blocks of the keys of a sequence, or of its new tokens."""
    lengths, longest = ("kv_lens", "kv_len") if of_keys else ("cu_q_lens", None)
    return Axis(
        name=name, choices=choices, unit=unit, lengths=lengths, longest=longest, is_within=True
    )


KERNEL = Kernel(
    name="vllm_ragged_paged_attention",
    dims=("seqs", "tokens", "kv_len", "page_size", "heads", "kv_heads", "head_dim"),
    dtypes=("bfloat16", "float32"),
    options=(BATCH, *SEEN),
    axes=tuple(block_axis(name, _choices(name), of_keys="bkv" in name) for name in _AXES),
    default=lambda problem: {name: _least(name, problem) for name in _AXES},
    default_on=_heuristics,
    inputs=lambda problem: paged_inputs(_KERNEL, problem, problem["head_dim"]),
    build=_build,
    reference=_reference,
    check=checked(check),
    constraint=dividing({axis.replace("_sz", "_csz"): axis for axis in _AXES if "_sz" in axis}),
    reduced=reduced,
    sizes=sizes,
    doc="vLLM's ragged paged attention v3 (tpu-inference), with its update of the cache",
)
