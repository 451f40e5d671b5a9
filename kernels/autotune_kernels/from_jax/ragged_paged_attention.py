"""JAX's ragged paged attention for TPU: the queries of sequences of any length, one after another.

What the kernel fetches and when depends on the lengths and the page table, so all are known, drawn
from NumPy's ``default_rng(0)``. The batch is one of

- ``decode``: one query for each sequence, keys uniform from 1 to what the table allows;
- ``prefill``: whole prompts; each takes from 1 to twice its mean share of the queries;
- ``mixed``: three sequences in four decode; the others are such prompts behind a cached prefix,
  with keys uniform from their own queries to what the table allows.

Queries beyond what the sequences can take are padding. The pool holds the pages in use and no
others, in random order; the rest of a table is page 0.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autotune import Array, Axis, Config, Kernel, Option, Problem
from autotune_kernels.from_jax import versions
from autotune_kernels.parts import not_multiple, page_table

_SEED = 0
_LANES = 128
_DEFAULT_PAGES, _DEFAULT_QUERIES = 128, 32
_MOST_QUERIES = 256
_TABLE = "ragged_paged_attention"
_TABLE_NAMES = {
    "v5e": "TPU v5",
    "v5p": "TPU v5",
    "v6e": "TPU v6",
}  # the first two words of the kind

_ragged_paged_attention = versions.op("ragged_paged_attention", "ragged_paged_attention")


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    settings = versions.settings(
        _ragged_paged_attention,
        sm_scale=problem["head_dim"] ** -0.5,
        num_kv_pages_per_block=config["num_kv_pages_per_block"],
        num_queries_per_block=config["num_queries_per_block"],
        vmem_limit_bytes=config.vmem_limit_bytes,
    )
    used = int(_query_lengths(problem).sum())

    def attention(*arrays: Any) -> Any:
        out = _ragged_paged_attention(*arrays, **settings)
        return out if used == problem["tokens"] else _without_padding(out, used)

    return attention


def _without_padding(out: Any, used: int) -> Any:
    """The kernel leaves rows behind the last query undefined."""
    return jnp.where(jnp.arange(out.shape[0])[:, None, None] < used, out, 0)


def _plain(problem: Problem, *, convert: Any = None) -> Callable[..., Any]:
    """Gathers every sequence's pages, pads every sequence to the most queries of one, and attends
    with all scores at once."""
    names = ("seqs", "tokens", "q_heads", "kv_heads", "head_dim")
    seqs, tokens, q_heads, kv_heads, head_dim = (problem[name] for name in names)
    lengths = _query_lengths(problem)
    most, used = int(lengths.max()), int(lengths.sum())
    dtype = jnp.dtype(problem.dtype)

    def attention(
        q: Any, kv_pages: Any, kv_lens: Any, page_table: Any, starts: Any, _num_seqs: Any
    ) -> Any:
        if convert is not None:
            q, kv_pages = q.astype(convert), kv_pages.astype(convert)
        places = jnp.minimum(starts[:-1, None] + jnp.arange(most), tokens - 1)
        padded = q[places].reshape(seqs, most, kv_heads, -1, head_dim)
        kv = kv_pages[page_table].reshape(seqs, -1, kv_heads, 2, head_dim)  # k and v in turn
        k, v = kv[..., 0, :], kv[..., 1, :]
        scores = jnp.einsum("sqhgd,skhd->shgqk", padded, k, preferred_element_type=jnp.float32)
        before = kv_lens - jnp.diff(starts)  # keys that no query of the sequence belongs to
        last_seen = before[:, None] + jnp.arange(most)  # [seqs, most]
        seen = jnp.arange(k.shape[1]) <= last_seen[:, :, None]
        scores = jnp.where(seen[:, None, None], scores * head_dim**-0.5, -jnp.inf)
        weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
        each = jnp.einsum("shgqk,skhd->sqhgd", weights, v, preferred_element_type=jnp.float32)
        row = jnp.arange(tokens)
        owner = jnp.minimum(jnp.searchsorted(starts, row, side="right") - 1, seqs - 1)
        out = each[owner, row - starts[owner]].reshape(tokens, q_heads, head_dim)
        return _without_padding(out.astype(dtype), used)

    return attention


def _sequences(problem: Problem) -> tuple[int, int]:
    """How many sequences decode, and how many bring a prompt."""
    in_use = min(problem["seqs"], problem["tokens"])
    share = {"decode": in_use, "prefill": 0, "mixed": in_use * 3 // 4}
    decoding = share[str(problem.option("batch"))]
    return decoding, in_use - decoding


def _query_lengths(problem: Problem) -> Any:
    """Queries of each sequence in use: int32 [sequences], those that decode first."""
    decoding, prompts = _sequences(problem)
    rng, longest = np.random.default_rng(_SEED), _longest(problem)
    left = min(problem["tokens"] - decoding, prompts * longest)
    lengths = [1] * decoding
    for others in reversed(range(prompts)):
        least = max(1, left - others * longest)
        most = min(longest, left - others, max(least, 2 * left // (others + 1) - 1))
        lengths.append(int(rng.integers(least, most + 1)))
        left -= lengths[-1]
    return np.asarray(lengths, np.int32)


def _kv_lengths(problem: Problem) -> Any:
    """Keys of each sequence, its own queries included: int32 [seqs], 0 where it is not in use."""
    queries = _query_lengths(problem)
    drawn = np.random.default_rng(_SEED).integers(queries, _longest(problem) + 1)
    used = queries if problem.option("batch") == "prefill" else drawn
    return _padded(problem["seqs"], used, 0)


def _query_starts(problem: Problem) -> Any:
    """First query of each sequence, and the end of the last: int32 [seqs + 1]."""
    ends = np.cumsum(_query_lengths(problem))
    return _padded(problem["seqs"] + 1, [0, *ends], ends[-1])


def _num_seqs(problem: Problem) -> Any:
    return np.asarray([sum(_sequences(problem))], np.int32)


def _page_table(problem: Problem) -> Any:
    """Where each page of each sequence is: int32 [seqs, pages]."""
    return page_table(_pages_used(problem), problem["pages"])


def _pages_used(problem: Problem) -> Any:
    return -(-_kv_lengths(problem) // problem["page_size"])


def _longest(problem: Problem) -> int:
    """Keys of the longest sequence that the table allows."""
    return problem["pages"] * problem["page_size"]


def _padded(size: int, values: Any, rest: Any) -> Any:
    out = np.full(size, rest, np.int32)
    out[: len(values)] = values
    return out


def _inputs(problem: Problem) -> list[Array]:
    seqs, head_dim = problem["seqs"], problem["head_dim"]
    pool = int(_pages_used(problem).sum())
    pages = (pool, problem["page_size"], 2 * problem["kv_heads"], head_dim)
    q = (problem["tokens"], problem["q_heads"], head_dim)

    def scalars(name: str, shape: tuple[int, ...], values: Callable[[Problem], Any]) -> Array:
        return Array(name=name, shape=shape, dtype="int32", values=partial(values, problem))

    return [
        Array(name="q", shape=q, dtype=problem.dtype),
        Array(name="kv_pages", shape=pages, dtype=problem.dtype, memory="hbm"),
        scalars("kv_lens", (seqs,), _kv_lengths),
        scalars("page_table", (seqs, problem["pages"]), _page_table),
        scalars("query_starts", (seqs + 1,), _query_starts),
        scalars("num_seqs", (1,), _num_seqs),
    ]


def _powers(least: int, most: int) -> set[int]:
    return {2**n for n in range(31) if least <= 2**n <= most}


def _pages_per_block(problem: Problem) -> list[int]:
    most = min(_DEFAULT_PAGES, problem["pages"])  # each is a DMA of its own in the program
    return sorted(_powers(1, most) | {most})


def _queries_per_block(problem: Problem) -> list[int]:
    """A block may span sequences: while they decode, a large one computes much in vain."""
    least = 1 if problem.option("batch") == "decode" else 8
    sizes = _powers(least, min(_MOST_QUERIES, problem["tokens"]))
    return sorted(sizes | {min(_DEFAULT_QUERIES, problem["tokens"])})


def _default(problem: Problem) -> dict[str, int]:
    """What JAX takes where its table of tuned sizes has no entry for the problem."""
    return _at_most(problem, _DEFAULT_PAGES, _DEFAULT_QUERIES)


def _default_on(problem: Problem, chip: str) -> dict[str, int]:
    """As JAX's ``get_tuned_block_sizes`` does, which asks the first device what it is."""
    if chip == "v4":
        return _at_most(problem, 32, _DEFAULT_QUERIES)
    known = versions.op(f"{_TABLE}.tuned_block_sizes", "TUNED_BLOCK_SIZES")
    simplified = versions.op(f"{_TABLE}.tuned_block_sizes", "simplify_key")
    least_heads = versions.op(f"{_TABLE}.kernel", "get_min_heads_per_blk")
    dtype = jnp.dtype(problem.dtype)
    q_heads, kv_heads = least_heads(problem["q_heads"], 2 * problem["kv_heads"], dtype, dtype)
    key = simplified(
        (
            dtype,
            dtype,
            q_heads,
            kv_heads // 2,
            problem["head_dim"],
            problem["page_size"],
            problem["tokens"],
            problem["pages"],
        )
    )
    tuned = known.get(_TABLE_NAMES.get(chip, ""), {})
    return _at_most(problem, *tuned.get(key, (_DEFAULT_PAGES, _DEFAULT_QUERIES)))


def _at_most(problem: Problem, pages: int, queries: int) -> dict[str, int]:
    return {
        "num_kv_pages_per_block": min(pages, problem["pages"]),
        "num_queries_per_block": min(queries, problem["tokens"]),
    }


def _check(problem: Problem) -> str | None:
    unequal = not_multiple(problem, "q_heads", "kv_heads")
    return unequal or not_multiple(problem, "head_dim", _LANES) or _split_tiles(problem)


def _split_tiles(problem: Problem) -> str | None:
    kv_heads, packing = problem["kv_heads"], 4 // jnp.dtype(problem.dtype).itemsize
    rows, rest = divmod(2 * kv_heads, packing)
    fills = not rest and (rows in (1, 2, 4) or rows % 8 == 0)
    return None if fills else f"kv_heads={kv_heads} do not fill whole tiles: try a power of two"


def _reduced(problem: Problem) -> Problem:
    """At most three sequences (two of them decode in a mixed batch) and two kv heads, with as many
    query heads each."""
    kv_heads, group = min(2, problem["kv_heads"]), problem["q_heads"] // problem["kv_heads"]
    seqs = min(3, problem["seqs"])
    return problem.with_dims(seqs=seqs, kv_heads=kv_heads, q_heads=kv_heads * group)


RAGGED = Kernel(
    name="jax_ragged_paged_attention",
    dims=("seqs", "tokens", "q_heads", "kv_heads", "pages", "page_size", "head_dim"),
    dtypes=("bfloat16", "float32"),
    options=(Option(name="batch", choices=("decode", "prefill", "mixed"), default="mixed"),),
    axes=(
        Axis(name="num_kv_pages_per_block", choices=_pages_per_block, dim="pages"),
        Axis(name="num_queries_per_block", choices=_queries_per_block, dim="tokens"),
    ),
    default=_default,
    default_on=_default_on,
    inputs=_inputs,
    build=_build,
    reference=lambda problem: _plain(problem, convert=jnp.float32),
    baseline=_plain,
    check=_check,
    reduced=_reduced,
    doc="JAX's ragged_paged_attention: causal attention of sequences of any length over pages",
)
