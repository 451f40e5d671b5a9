"""JAX's paged attention for TPU: one query per sequence, keys and values in pages anywhere.

What the kernel fetches depends on the lengths and the page table, so both are known, drawn from
NumPy's ``default_rng(0)``. Lengths are ``full`` (all that the table allows), ``uniform`` from 1 to
that, or ``long-tail``: log-normal with a median of an eighth of that and sigma 1, cut off there.
The pool holds the pages in use and no others, in random order; the rest of a table is page 0.
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
_DEFAULT_POSITIONS = 512  # keys in a compute block: what JAX's own tests of the kernel take
_MOST_PAGES = 64  # each page of a block is a DMA of its own in the program
_LANES = 128

_paged_attention = versions.op("paged_attention", "paged_attention")


def _build(_problem: Problem, config: Config) -> Callable[..., Any]:
    mode = config["megacore_mode"]
    settings = versions.settings(
        _paged_attention,
        pages_per_compute_block=config["pages_per_compute_block"],
        inline_seq_dim=config["inline_seq_dim"],
        megacore_mode=None if mode == "none" else mode,
    )

    def attention(q: Any, k_pages: Any, v_pages: Any, lengths: Any, page_table: Any) -> Any:
        if mode != "none":
            _demand_two_cores(mode)
        return _paged_attention(q, k_pages, v_pages, lengths, page_table, **settings)

    return attention


def _demand_two_cores(mode: str) -> None:
    """The kernel gives each core its share and hangs where there is one; unknown chips pass, and
    all of a JAX that does not describe them (0.6)."""
    described = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
    if described is not None and described.num_cores != 2:
        raise ValueError(f"megacore_mode={mode} needs a chip with two cores behind one device")


def _plain(problem: Problem, *, convert: Any = None) -> Callable[..., Any]:
    """Gathers every sequence's pages and attends to them with all scores at once."""
    batch, q_heads, kv_heads = problem["batch"], problem["q_heads"], problem["kv_heads"]
    head_dim, dtype = problem["head_dim"], jnp.dtype(problem.dtype)

    def gathered(pages: Any, page_table: Any) -> Any:  # → [kv_heads, batch, keys, head_dim]
        return pages[:, page_table].reshape(kv_heads, batch, -1, head_dim)

    def attention(q: Any, k_pages: Any, v_pages: Any, lengths: Any, page_table: Any) -> Any:
        if convert is not None:
            q, k_pages, v_pages = (a.astype(convert) for a in (q, k_pages, v_pages))
        k, v = gathered(k_pages, page_table), gathered(v_pages, page_table)
        q = q.reshape(batch, kv_heads, q_heads // kv_heads, head_dim)
        scores = jnp.einsum("bhgd,hbkd->bhgk", q, k, preferred_element_type=jnp.float32)
        seen = jnp.arange(k.shape[2]) < lengths[:, None]  # [batch, keys]
        scores = jnp.where(seen[:, None, None], scores, -jnp.inf)
        weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
        out = jnp.einsum("bhgk,hbkd->bhgd", weights, v, preferred_element_type=jnp.float32)
        return out.reshape(batch, q_heads, head_dim).astype(dtype)

    return attention


def _lengths(problem: Problem) -> Any:
    """Keys of each sequence: int32 [batch], each at least 1."""
    batch, longest = problem["batch"], problem["pages"] * problem["page_size"]
    rng = np.random.default_rng(_SEED)
    kind = problem.option("lengths")
    if kind == "full":
        drawn = np.full(batch, longest)
    elif kind == "uniform":
        drawn = rng.integers(1, longest + 1, batch)
    else:
        drawn = np.rint(longest / 8 * rng.lognormal(sigma=1.0, size=batch))
    return np.clip(drawn, 1, longest).astype(np.int32)


def _pages_used(problem: Problem) -> Any:
    """Pages of each sequence: int32 [batch]."""
    return -(-_lengths(problem) // problem["page_size"])


def _inputs(problem: Problem) -> list[Array]:
    batch, head_dim = problem["batch"], problem["head_dim"]
    pool = (problem["kv_heads"], int(_pages_used(problem).sum()), problem["page_size"], head_dim)
    table = (batch, problem["pages"])
    return [
        Array(name="q", shape=(batch, problem["q_heads"], head_dim), dtype=problem.dtype),
        Array(name="k_pages", shape=pool, dtype=problem.dtype, memory="hbm"),
        Array(name="v_pages", shape=pool, dtype=problem.dtype, memory="hbm"),
        Array(name="lengths", shape=(batch,), dtype="int32", values=partial(_lengths, problem)),
        Array(
            name="page_table",
            shape=table,
            dtype="int32",
            values=lambda: page_table(_pages_used(problem), problem["pages"]),
        ),
    ]


def _pages_per_block(problem: Problem) -> list[int]:
    """The kernel wants whole blocks of pages."""
    most = min(_MOST_PAGES, problem["pages"])
    return [count for count in range(1, most + 1) if problem["pages"] % count == 0]


def _megacore_modes(problem: Problem) -> list[str]:
    """Halves of an odd number are refused; so is every mode but ``none`` on a chip with one core,
    when it is traced. A JAX that cannot tell the chip then is not asked for the others."""
    if not hasattr(jax.sharding, "AbstractDevice"):
        return ["none"]
    halves = {"kv_head": problem["kv_heads"], "batch": problem["batch"]}
    return ["none", *(mode for mode, count in halves.items() if count % 2 == 0)]


def _default(problem: Problem) -> dict[str, int | str | bool]:
    """JAX has no default for the pages of a block: the most that hold 512 keys."""
    wanted = max(1, _DEFAULT_POSITIONS // problem["page_size"])
    pages = max(count for count in _pages_per_block(problem) if count <= wanted)
    return {"pages_per_compute_block": pages, "inline_seq_dim": True, "megacore_mode": "none"}


def _check(problem: Problem) -> str | None:
    lanes = not_multiple(problem, "head_dim", _LANES)
    return not_multiple(problem, "q_heads", "kv_heads") or lanes


def _reduced(problem: Problem) -> Problem:
    """At most two sequences and two kv heads, with as many query heads each: their number decides
    which program is made."""
    kv_heads, group = min(2, problem["kv_heads"]), problem["q_heads"] // problem["kv_heads"]
    batch = min(2, problem["batch"])
    return problem.with_dims(batch=batch, kv_heads=kv_heads, q_heads=kv_heads * group)


PAGED = Kernel(
    name="jax_paged_attention",
    dims=("batch", "q_heads", "kv_heads", "pages", "page_size", "head_dim"),
    dtypes=("bfloat16",),  # the kernel rounds keys and values of any other to bfloat16
    options=(Option(name="lengths", choices=("full", "uniform", "long-tail"), default="uniform"),),
    axes=(
        Axis(name="pages_per_compute_block", choices=_pages_per_block, dim="pages"),
        Axis(name="inline_seq_dim", choices=lambda _: (True, False)),
        Axis(name="megacore_mode", choices=_megacore_modes),
    ),
    default=_default,
    inputs=_inputs,
    build=_build,
    reference=lambda problem: _plain(problem, convert=jnp.float32),
    baseline=_plain,
    check=_check,
    reduced=_reduced,
    doc="JAX's paged_attention: one query per sequence, softmax(q @ k.T) @ v over its pages",
)
