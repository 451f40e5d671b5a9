"""Rows in groups, each group times the weights of its own expert."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune import Array, Axis, Config, Grid, Kernel, Option, Problem, block, compiler_params

_SEED = 0


def _body(
    _expert: Any,  # [groups], read by the index maps
    rows: Any,  # [block_m, block_k]
    weights: Any,  # [block_k, block_n]
    out: Any,  # [block_m, block_n]
    acc: Any,  # [block_m, block_n]
    *,
    k_axis: int,
    tail: int,
) -> None:
    step, last = pl.program_id(k_axis), pl.num_programs(k_axis) - 1
    block_k = rows.shape[1]

    def start() -> None:
        acc[...] = jnp.zeros_like(acc)

    pl.when(step == 0)(start)

    def accumulate(width: int) -> None:
        acc[...] += jnp.dot(rows[:, :width], weights[:width, :], preferred_element_type=jnp.float32)

    if tail == block_k:
        accumulate(block_k)
    else:  # beyond the edge of k a block holds garbage
        pl.when(step < last)(lambda: accumulate(block_k))
        pl.when(step == last)(lambda: accumulate(tail))

    def store() -> None:
        out[...] = acc[...].astype(out.dtype)

    pl.when(step == last)(store)


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    tokens, k, n = problem["tokens"], problem["k"], problem["n"]
    block_m, block_k, block_n = config["block_m"], config["block_k"], config["block_n"]
    grid = Grid(config, n=pl.cdiv(n, block_n), m=pl.cdiv(tokens, block_m), k=pl.cdiv(k, block_k))
    per_group = _group(problem) // block_m
    weights_index = grid.index_map(lambda n, m, k, expert: (expert[lax.div(m, per_group)], k, n))
    call: Callable[..., Any] = pl.pallas_call(
        partial(_body, k_axis=grid.axis("k"), tail=k - block_k * (pl.cdiv(k, block_k) - 1)),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=grid.sizes,
            in_specs=[
                pl.BlockSpec((block_m, block_k), grid.index_map(lambda m, k: (m, k))),
                pl.BlockSpec((None, block_k, block_n), weights_index),
            ],
            out_specs=pl.BlockSpec((block_m, block_n), grid.index_map(lambda m, n: (m, n))),
            scratch_shapes=[pltpu.VMEM((block_m, block_n), jnp.float32)],
        ),
        out_shape=jax.ShapeDtypeStruct((tokens, n), jnp.dtype(problem.dtype)),
        compiler_params=compiler_params(config),
        name="gathered_matmul",
    )
    return call


def _reference(problem: Problem) -> Callable[..., Any]:
    """One group after the other, so that no weights are copied per group."""
    tokens, k, n, group = problem["tokens"], problem["k"], problem["n"], _group(problem)
    groups = _groups(problem)

    def matmul(expert: Any, rows: Any, weights: Any) -> Any:
        padded = jnp.pad(rows.astype(jnp.float32), ((0, groups * group - tokens), (0, 0)))

        def one(pair: Any) -> Any:
            number, part = pair
            return jnp.dot(part, weights[number].astype(jnp.float32)).astype(rows.dtype)

        parts = lax.map(one, (expert, padded.reshape(groups, group, k)))
        return parts.reshape(groups * group, n)[:tokens]

    return matmul


def _baseline(problem: Problem) -> Callable[..., Any]:
    """XLA's ragged dot; it needs the groups sorted by expert, as ``_experts`` gives them."""
    tokens, group = problem["tokens"], _group(problem)
    in_last = tokens - group * (_groups(problem) - 1)

    def matmul(expert: Any, rows: Any, weights: Any) -> Any:
        counts = jnp.full(expert.shape, group, jnp.int32).at[-1].set(in_last)
        sizes = jnp.zeros(problem["experts"], jnp.int32).at[expert].add(counts)
        out = lax.ragged_dot(rows, weights, sizes, preferred_element_type=jnp.float32)
        return out.astype(rows.dtype)

    return matmul


def _group(problem: Problem) -> int:
    return min(int(problem.option("group")), problem["tokens"])


def _groups(problem: Problem) -> int:
    return -(-problem["tokens"] // _group(problem))


def _experts(problem: Problem) -> Any:
    """The expert of each group, sorted as after a mixture-of-experts sort."""
    drawn = np.random.default_rng(_SEED).integers(problem["experts"], size=_groups(problem))
    return np.sort(drawn).astype(np.int32)


def _inputs(problem: Problem) -> list[Array]:
    tokens, k, n, experts = (problem[dim] for dim in ("tokens", "k", "n", "experts"))
    return [
        Array(
            name="expert",
            shape=(_groups(problem),),
            dtype="int32",
            values=partial(_experts, problem),
        ),
        Array(name="rows", shape=(tokens, k), dtype=problem.dtype),
        Array(name="weights", shape=(experts, k, n), dtype=problem.dtype),
    ]


def _block_m(problem: Problem) -> list[int]:
    """A block lies within one group: powers of two that divide it, and the group."""
    group = _group(problem)
    return [size for size in (16, 32, 64, 128, 256) if size < group and group % size == 0] + [group]


def _default(problem: Problem) -> dict[str, int]:
    sizes = _block_m(problem)
    return {
        "block_m": max((size for size in sizes if size <= 128), default=sizes[-1]),
        "block_k": min(128, problem["k"]),
        "block_n": min(128, problem["n"]),
    }


KERNEL = Kernel(
    name="gathered_matmul",
    dims=("tokens", "k", "n", "experts"),
    dtypes=("bfloat16", "float32"),
    options=(Option(name="group", choices=(128, 256, 512), default=128),),
    axes=(
        Axis(name="block_m", choices=_block_m, dim="tokens"),
        block("block_k", "k", maximum=4096),
        block("block_n", "n", maximum=2048),
    ),
    default=_default,
    grid=("n", "m", "k"),
    inputs=_inputs,
    build=_build,
    reference=_reference,
    baseline=_baseline,
    doc="rows @ weights[expert of the row's group], accumulated in float32",
)
