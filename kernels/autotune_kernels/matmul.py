"""Matrix multiplication with an activation fused onto the accumulator."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune import Array, Config, Grid, Kernel, Option, Problem, block, compiler_params

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: x,
    "relu": lambda x: jnp.maximum(x, 0),
    "gelu": partial(jax.nn.gelu, approximate=True),
}


def _body(
    lhs: Any,  # [block_m, block_k]
    rhs: Any,  # [block_k, block_n], transposed: [block_n, block_k]
    out: Any,  # [block_m, block_n]
    acc: Any,  # [block_m, block_n]
    *,
    k_axis: int,
    tail: int,
    transpose_rhs: bool,
    activation: str,
) -> None:
    step, last = pl.program_id(k_axis), pl.num_programs(k_axis) - 1
    block_k = lhs.shape[1]

    def start() -> None:
        acc[...] = jnp.zeros_like(acc)

    pl.when(step == 0)(start)

    def accumulate(width: int) -> None:
        left = lhs[:, :width]
        right = rhs[:, :width] if transpose_rhs else rhs[:width, :]
        acc[...] += _product(left, right, transpose_rhs, acc.dtype)

    if tail == block_k:
        accumulate(block_k)
    else:  # beyond the edge of k a block holds garbage
        pl.when(step < last)(lambda: accumulate(block_k))
        pl.when(step == last)(lambda: accumulate(tail))

    def store() -> None:
        out[...] = _ACTIVATIONS[activation](acc[...]).astype(out.dtype)

    pl.when(step == last)(store)


def _product(lhs: Any, rhs: Any, transpose_rhs: bool, accumulator: Any) -> Any:
    if transpose_rhs and rhs.shape[0] == 1:  # no dot: Pallas does not lower this one for bf16, int8
        wide = lhs.astype(accumulator) * rhs.astype(accumulator)
        return jnp.sum(wide, axis=1, keepdims=True)
    contract = ((1,), (1 if transpose_rhs else 0,))
    return lax.dot_general(lhs, rhs, (contract, ((), ())), preferred_element_type=accumulator)


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    m, k, n = problem["m"], problem["k"], problem["n"]
    block_m, block_k, block_n = config["block_m"], config["block_k"], config["block_n"]
    transpose_rhs = bool(problem.option("transpose_rhs"))
    grid = Grid(config, m=pl.cdiv(m, block_m), n=pl.cdiv(n, block_n), k=pl.cdiv(k, block_k))
    rhs_spec = (
        pl.BlockSpec((block_n, block_k), grid.index_map(lambda n, k: (n, k)))
        if transpose_rhs
        else pl.BlockSpec((block_k, block_n), grid.index_map(lambda k, n: (k, n)))
    )
    body = partial(
        _body,
        k_axis=grid.axis("k"),
        tail=k - block_k * (pl.cdiv(k, block_k) - 1),
        transpose_rhs=transpose_rhs,
        activation=str(problem.option("activation")),
    )
    call: Callable[..., Any] = pl.pallas_call(
        body,
        grid=grid.sizes,
        in_specs=[pl.BlockSpec((block_m, block_k), grid.index_map(lambda m, k: (m, k))), rhs_spec],
        out_specs=pl.BlockSpec((block_m, block_n), grid.index_map(lambda m, n: (m, n))),
        out_shape=jax.ShapeDtypeStruct((m, n), _out_dtype(problem)),
        scratch_shapes=[pltpu.VMEM((block_m, block_n), _accumulator(problem))],
        compiler_params=compiler_params(config),
        name="matmul",
    )
    return call


def _plain(problem: Problem, *, convert: Any = None) -> Callable[..., Any]:
    """XLA's matmul, of the inputs as they are or converted first."""
    transpose_rhs = bool(problem.option("transpose_rhs"))
    accumulator, out_dtype = _accumulator(problem), _out_dtype(problem)
    activation = _ACTIVATIONS[str(problem.option("activation"))]

    def matmul(lhs: Any, rhs: Any) -> Any:
        if convert is not None:
            lhs, rhs = lhs.astype(convert), rhs.astype(convert)
        contract = ((1,), (1 if transpose_rhs else 0,))
        acc = lax.dot_general(lhs, rhs, (contract, ((), ())), preferred_element_type=accumulator)
        return activation(acc).astype(out_dtype)

    return matmul


def _reference(problem: Problem) -> Callable[..., Any]:
    return _plain(problem, convert=_accumulator(problem))


def _accumulator(problem: Problem) -> Any:
    return jnp.int32 if problem.dtype == "int8" else jnp.float32


def _out_dtype(problem: Problem) -> Any:
    return jnp.int32 if problem.dtype == "int8" else jnp.dtype(problem.dtype)


def _inputs(problem: Problem) -> list[Array]:
    m, k, n = problem["m"], problem["k"], problem["n"]
    rhs = (n, k) if problem.option("transpose_rhs") else (k, n)
    return [
        Array(name="lhs", shape=(m, k), dtype=problem.dtype),
        Array(name="rhs", shape=rhs, dtype=problem.dtype),
    ]


def _check(problem: Problem) -> str | None:
    if problem.dtype == "int8" and problem.option("activation") == "gelu":
        return "gelu needs a floating-point accumulator: int8 takes activation none or relu"
    return None


KERNEL = Kernel(
    name="matmul",
    dims=("m", "k", "n"),
    dtypes=("bfloat16", "float32", "int8"),
    options=(
        Option(name="transpose_rhs", choices=(False, True), default=False),
        Option(name="activation", choices=("none", "relu", "gelu"), default="none"),
    ),
    axes=(
        block("block_m", "m", maximum=2048),
        block("block_k", "k", maximum=4096),
        block("block_n", "n", maximum=2048),
    ),
    default=lambda problem: {f"block_{dim}": min(128, problem[dim]) for dim in ("m", "k", "n")},
    grid=("m", "n", "k"),
    inputs=_inputs,
    build=_build,
    reference=_reference,
    baseline=_plain,
    check=_check,
    doc="activation(lhs @ rhs), accumulated in float32 (int8: int32)",
)
