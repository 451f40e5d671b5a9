"""Attention with an online softmax: the scores never leave VMEM."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune import Array, Config, Grid, Kernel, Option, Problem, block, compiler_params

_LANES = 128
_MASKED = -0.7 * float(np.finfo(np.float32).max)  # finite: the difference of two is no NaN
_QK = (((1,), (1,)), ((), ()))  # q @ k.T


def _body(
    q: Any,  # [block_q, head_dim]
    k: Any,  # [block_kv, head_dim]
    v: Any,  # [block_kv, head_dim]
    out: Any,  # [block_q, head_dim]
    row_max: Any,  # [block_q, 128], each row one value
    row_sum: Any,  # [block_q, 128], each row one value
    acc: Any,  # [block_q, head_dim]
    *,
    q_axis: int,
    kv_axis: int,
    tail: int,
    diagonal: int | None,
) -> None:
    """Query i sees keys j ≤ i + ``diagonal``; None: all of them."""
    step, last = pl.program_id(kv_axis), pl.num_programs(kv_axis) - 1
    (block_q, head_dim), block_kv = q.shape, k.shape[0]
    first_key = step * block_kv
    sees = None if diagonal is None else diagonal + pl.program_id(q_axis) * block_q

    def start() -> None:
        row_max[...] = jnp.full_like(row_max, _MASKED)
        row_sum[...] = jnp.zeros_like(row_sum)
        acc[...] = jnp.zeros_like(acc)

    pl.when(step == 0)(start)

    def attend(width: int) -> None:
        scores = _scores(q[...], k[:width, :]) * (1 / math.sqrt(head_dim))  # [block_q, width]
        if sees is not None:
            row = lax.broadcasted_iota(jnp.int32, scores.shape, 0)
            key = lax.broadcasted_iota(jnp.int32, scores.shape, 1)
            scores = jnp.where(key - row <= sees - first_key, scores, _MASKED)
        old_max = row_max[...]
        new_max = jnp.maximum(old_max, jnp.max(scores, axis=1, keepdims=True))
        weights = jnp.exp(scores - _lanes(new_max, width))
        shrink = jnp.exp(old_max - new_max)
        row_max[...] = new_max
        row_sum[...] = shrink * row_sum[...] + jnp.sum(weights, axis=1, keepdims=True)
        values = jnp.dot(weights.astype(v.dtype), v[:width, :], preferred_element_type=jnp.float32)
        acc[...] = _lanes(shrink, head_dim) * acc[...] + values

    # A block whose first key lies behind the last query's diagonal has nothing to add.
    visible = step <= last if sees is None else first_key <= sees + block_q - 1
    if tail == block_kv:
        pl.when(visible)(lambda: attend(block_kv))
    else:  # beyond the edge of kv_len a block holds garbage
        pl.when(jnp.logical_and(visible, step < last))(lambda: attend(block_kv))
        pl.when(jnp.logical_and(visible, step == last))(lambda: attend(tail))

    def store() -> None:
        out[...] = (acc[...] / _lanes(row_sum[...], head_dim)).astype(out.dtype)

    pl.when(step == last)(store)


def _scores(q: Any, k: Any) -> Any:
    if k.shape[0] == 1:  # no dot: Pallas does not lower this one for bf16
        wide = q.astype(jnp.float32) * k.astype(jnp.float32)
        return jnp.sum(wide, axis=1, keepdims=True)
    return lax.dot_general(q, k, _QK, preferred_element_type=jnp.float32)


def _lanes(x: Any, width: int) -> Any:
    """[rows, 128] with equal lanes → [rows, width]; whole registers are reused, none is moved."""
    return jnp.concatenate([x] * pl.cdiv(width, _LANES), axis=1)[:, :width]


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    batch, heads, head_dim = problem["batch"], problem["q_heads"], problem["head_dim"]
    q_len, kv_len = problem["q_len"], problem["kv_len"]
    block_q, block_kv = config["block_q"], config["block_kv"]
    per_kv_head = heads // problem["kv_heads"]
    diagonal = kv_len - q_len if problem.option("causal") else None
    kv_blocks = pl.cdiv(kv_len, block_kv)
    grid = Grid(config, batch=batch, head=heads, q=pl.cdiv(q_len, block_q), kv=kv_blocks)

    def kv_index(batch: Any, head: Any, q: Any, kv: Any) -> Any:
        if diagonal is not None:  # a block that is skipped is not fetched either
            last_key = jnp.minimum(diagonal + (q + 1) * block_q, kv_len) - 1
            kv = jnp.minimum(kv, lax.div(last_key, block_kv))
        return batch, lax.div(head, per_kv_head), kv, 0

    q_spec = pl.BlockSpec(
        (None, None, block_q, head_dim), grid.index_map(lambda batch, head, q: (batch, head, q, 0))
    )
    kv_spec = pl.BlockSpec((None, None, block_kv, head_dim), grid.index_map(kv_index))
    body = partial(
        _body,
        q_axis=grid.axis("q"),
        kv_axis=grid.axis("kv"),
        tail=kv_len - block_kv * (kv_blocks - 1),
        diagonal=diagonal,
    )
    call: Callable[..., Any] = pl.pallas_call(
        body,
        grid=grid.sizes,
        in_specs=[q_spec, kv_spec, kv_spec],
        out_specs=q_spec,
        out_shape=jax.ShapeDtypeStruct((batch, heads, q_len, head_dim), jnp.dtype(problem.dtype)),
        scratch_shapes=[
            pltpu.VMEM((block_q, _LANES), jnp.float32),
            pltpu.VMEM((block_q, _LANES), jnp.float32),
            pltpu.VMEM((block_q, head_dim), jnp.float32),
        ],
        compiler_params=compiler_params(config),
        name="flash_attention",
    )
    return call


def _plain(problem: Problem, *, convert: Any = None) -> Callable[..., Any]:
    """softmax(q k^T) v with all scores at once, of the inputs as they are or converted first."""
    batch, kv_heads, head_dim = problem["batch"], problem["kv_heads"], problem["head_dim"]
    q_heads, q_len, kv_len = problem["q_heads"], problem["q_len"], problem["kv_len"]
    dtype = jnp.dtype(problem.dtype)

    def attention(q: Any, k: Any, v: Any) -> Any:
        if convert is not None:
            q, k, v = q.astype(convert), k.astype(convert), v.astype(convert)
        q = q.reshape(batch, kv_heads, q_heads // kv_heads, q_len, head_dim)
        scores = jnp.einsum("bhgqd,bhkd->bhgqk", q, k, preferred_element_type=jnp.float32)
        scores /= math.sqrt(head_dim)
        if problem.option("causal"):
            seen = jnp.tril(jnp.ones((q_len, kv_len), bool), kv_len - q_len)
            scores = jnp.where(seen, scores, -jnp.inf)
        weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
        out = jnp.einsum("bhgqk,bhkd->bhgqd", weights, v, preferred_element_type=jnp.float32)
        return out.reshape(batch, q_heads, q_len, head_dim).astype(dtype)

    return attention


def _inputs(problem: Problem) -> list[Array]:
    batch, head_dim = problem["batch"], problem["head_dim"]
    q = (batch, problem["q_heads"], problem["q_len"], head_dim)
    kv = (batch, problem["kv_heads"], problem["kv_len"], head_dim)
    shapes = {"q": q, "k": kv, "v": kv}
    return [Array(name=name, shape=shapes[name], dtype=problem.dtype) for name in shapes]


def _check(problem: Problem) -> str | None:
    q_heads, kv_heads = problem["q_heads"], problem["kv_heads"]
    if q_heads % kv_heads:
        return f"q_heads={q_heads} must be a multiple of kv_heads={kv_heads}"
    q_len, kv_len = problem["q_len"], problem["kv_len"]
    if problem.option("causal") and kv_len < q_len:
        return f"causal needs kv_len={kv_len} to be at least q_len={q_len}"
    return None


def _reduced(problem: Problem) -> Problem:
    """At most two batches, two kv heads and two query heads each: two blocks on every axis."""
    kv_heads = min(2, problem["kv_heads"])
    group = min(2, problem["q_heads"] // problem["kv_heads"])
    batch = min(2, problem["batch"])
    return problem.with_dims(batch=batch, kv_heads=kv_heads, q_heads=kv_heads * group)


KERNEL = Kernel(
    name="flash_attention",
    dims=("batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim"),
    alike=(("kv_heads", "q_heads"), ("kv_len", "q_len")),
    dtypes=("bfloat16", "float32"),
    options=(Option(name="causal", choices=(False, True), default=False),),
    axes=(block("block_q", "q_len", maximum=2048), block("block_kv", "kv_len", maximum=4096)),
    default=lambda problem: {
        "block_q": min(128, problem["q_len"]),
        "block_kv": min(128, problem["kv_len"]),
    },
    grid=("batch", "head", "q", "kv"),
    inputs=_inputs,
    build=_build,
    reference=lambda problem: _plain(problem, convert=jnp.float32),
    baseline=_plain,
    check=_check,
    reduced=_reduced,
    doc="softmax(q @ k.T / sqrt(head_dim)) @ v, with grouped query heads",
)
