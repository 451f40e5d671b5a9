"""Kernels that each break one rule which none of the catalogue can break by its grid order."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune import Array, Axis, Config, Kernel, Problem, compiler_params

_ROWS, _LANES = 8, 128


def _kernel(name: str, build: Callable[[Problem, Config], Any], reference: Any) -> Kernel:
    """A kernel of [rows, 128] float32 with blocks of 8 rows and one fixed grid axis."""
    return Kernel(
        name=name,
        dims=("rows",),
        dtypes=("float32",),
        axes=(Axis(name="block_rows", choices=lambda _: [_ROWS]),),
        default=lambda _: {"block_rows": _ROWS},
        inputs=lambda p: [Array(name="x", shape=(p["rows"], _LANES), dtype="float32")],
        build=build,
        reference=lambda _: reference,
    )


def _shape(problem: Problem) -> Any:
    return jax.ShapeDtypeStruct((problem["rows"], _LANES), jnp.float32)


def _spec(index: Callable[[Any], Any]) -> Any:
    return pl.BlockSpec((_ROWS, _LANES), lambda i: (index(i), 0))


def _blocks(problem: Problem) -> int:
    return int(problem["rows"]) // _ROWS


def _double(x: Any, out: Any, *_: Any) -> None:
    out[...] = 2 * x[...]


def _half_written(problem: Problem, config: Config) -> Any:
    """The grid stops before the last block of the output."""
    return pl.pallas_call(
        _double,
        grid=(_blocks(problem) - 1,),
        in_specs=[_spec(lambda i: i)],
        out_specs=_spec(lambda i: i),
        out_shape=_shape(problem),
        compiler_params=compiler_params(config),
    )


def _shifted_alias(problem: Problem, config: Config) -> Any:
    """In place, but each step reads the block that the step before it has written."""
    return pl.pallas_call(
        _double,
        grid=(_blocks(problem),),
        in_specs=[_spec(lambda i: jnp.maximum(i - 1, 0))],
        out_specs=_spec(lambda i: i),
        out_shape=_shape(problem),
        input_output_aliases={0: 0},
        compiler_params=compiler_params(config),
    )


def _running_sum(problem: Problem, config: Config) -> Any:
    """Each output block is written once, but a scratch buffer carries the sum through all steps."""

    def body(x: Any, out: Any, total: Any) -> None:
        def start() -> None:
            total[...] = jnp.zeros_like(total)

        pl.when(pl.program_id(0) == 0)(start)
        total[...] += x[...]
        out[...] = total[...]

    return pl.pallas_call(
        body,
        grid=(_blocks(problem),),
        in_specs=[_spec(lambda i: i)],
        out_specs=_spec(lambda i: i),
        out_shape=_shape(problem),
        scratch_shapes=[pltpu.VMEM((_ROWS, _LANES), jnp.float32)],
        compiler_params=compiler_params(config),
    )


def _by_hand(problem: Problem, config: Config) -> Any:
    """Every step copies its block to the same place of an output in HBM."""

    def body(x: Any, out: Any, done: Any) -> None:
        copy = pltpu.make_async_copy(x, out.at[pl.ds(0, _ROWS)], done)
        copy.start()
        copy.wait()

    return pl.pallas_call(
        body,
        grid=(_blocks(problem),),
        in_specs=[_spec(lambda i: i)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        out_shape=jax.ShapeDtypeStruct((_ROWS, _LANES), jnp.float32),
        scratch_shapes=[pltpu.SemaphoreType.DMA],
        compiler_params=compiler_params(config),
    )


def _shifted(x: Any) -> Any:
    return 2 * jnp.concatenate([x[:_ROWS], x[:-_ROWS]])


def _sums(x: Any) -> Any:
    return jnp.cumsum(x.reshape(-1, _ROWS, _LANES), 0).reshape(x.shape)


HALF_WRITTEN = _kernel("half_written", _half_written, lambda x: 2 * x)
SHIFTED_ALIAS = _kernel("shifted_alias", _shifted_alias, _shifted)
RUNNING_SUM = _kernel("running_sum", _running_sum, _sums)
BY_HAND = _kernel("by_hand", _by_hand, lambda x: x[-_ROWS:])
