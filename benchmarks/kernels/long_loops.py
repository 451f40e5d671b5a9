"""Kernels whose interpretation is long: loops over rows, whole rows in a block, many grid steps."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import autotune

F32 = jnp.float32


def _like(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _recurrence_body(a_ref: Any, x_ref: Any, out_ref: Any, state_ref: Any) -> None:
    def start() -> None:
        state_ref[...] = jnp.zeros_like(state_ref)

    pl.when(pl.program_id(0) == 0)(start)

    def step(t: Any, state: Any) -> Any:
        state = a_ref[pl.ds(t, 1), :] * state + x_ref[pl.ds(t, 1), :]
        out_ref[pl.ds(t, 1), :] = state
        return state

    state_ref[...] = lax.fori_loop(0, a_ref.shape[0], step, state_ref[...])


def _recurrence(a: Any, x: Any) -> Any:
    def step(state: Any, pair: Any) -> Any:
        state = pair[0] * state + pair[1]
        return state, state

    return lax.scan(step, jnp.zeros(a.shape[1:], a.dtype), (a, x))[1]


@autotune.tunable(block=[128, 256, 512], reference=lambda a, x: _recurrence(jnp.tanh(a), x))
def recurrence(a: Any, x: Any, *, block: int = 128) -> Any:
    spec = pl.BlockSpec((block, x.shape[1]), lambda t: (t, 0))
    return pl.pallas_call(
        _recurrence_body,
        grid=(x.shape[0] // block,),
        in_specs=[spec, spec],
        out_specs=spec,
        out_shape=_like(x),
        scratch_shapes=[pltpu.VMEM((1, x.shape[1]), F32)],
    )(jnp.tanh(a), x)


def _solve_body(l_ref: Any, b_ref: Any, out_ref: Any, *, block: int) -> None:
    i = pl.program_id(0)

    def start() -> None:
        out_ref[...] = jnp.zeros_like(out_ref)

    pl.when(i == 0)(start)

    def row(r: Any, _: Any) -> Any:
        known = jnp.dot(l_ref[pl.ds(r, 1), :], out_ref[...], precision="highest")
        out_ref[pl.ds(i * block + r, 1), :] = b_ref[pl.ds(r, 1), :] - known
        return 0

    lax.fori_loop(0, block, row, 0)


def _strict(m: Any) -> Any:
    return jnp.tril(m, -1) / m.shape[0]


def _solve(m: Any, b: Any) -> Any:
    unit = _strict(m) + jnp.eye(m.shape[0], dtype=m.dtype)
    return lax.linalg.triangular_solve(unit, b, left_side=True, lower=True, unit_diagonal=True)


@autotune.tunable(block=[16, 32, 64], reference=_solve)
def triangular_solve(m: Any, b: Any, *, block: int = 16) -> Any:
    n, columns = b.shape
    return pl.pallas_call(
        functools.partial(_solve_body, block=block),
        grid=(n // block,),
        in_specs=[
            pl.BlockSpec((block, n), lambda i: (i, 0)),
            pl.BlockSpec((block, columns), lambda i: (i, 0)),
        ],
        out_specs=pl.BlockSpec((n, columns), lambda _: (0, 0)),
        out_shape=_like(b),
    )(_strict(m), b)


def _maximum_body(x_ref: Any, out_ref: Any, top_ref: Any) -> None:
    def start() -> None:
        top_ref[...] = jnp.full_like(top_ref, -jnp.inf)

    pl.when(pl.program_id(0) == 0)(start)

    def row(r: Any, _: Any) -> Any:
        top_ref[...] = jnp.maximum(top_ref[...], x_ref[pl.ds(r, 1), :])
        out_ref[pl.ds(r, 1), :] = top_ref[...]
        return 0

    lax.fori_loop(0, x_ref.shape[0], row, 0)


@autotune.tunable(block=[128, 256, 512], reference=lambda x: lax.cummax(x, 0))
def running_maximum(x: Any, *, block: int = 128) -> Any:
    rows, lanes = x.shape
    return pl.pallas_call(
        _maximum_body,
        grid=(rows // block,),
        in_specs=[pl.BlockSpec((block, lanes), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((block, lanes), lambda i: (i, 0)),
        out_shape=_like(x),
        scratch_shapes=[pltpu.VMEM((1, lanes), F32)],
    )(x)


def _softmax_body(x_ref: Any, out_ref: Any, top_ref: Any, sum_ref: Any) -> None:
    phase, j = pl.program_id(1), pl.program_id(2)

    def start() -> None:
        top_ref[...] = jnp.full_like(top_ref, -jnp.inf)
        sum_ref[...] = jnp.zeros_like(sum_ref)

    pl.when((phase == 0) & (j == 0))(start)

    def first_pass() -> None:
        top = jnp.maximum(top_ref[...], jnp.max(x_ref[...], axis=1, keepdims=True))
        rescaled = sum_ref[...] * jnp.exp(top_ref[...] - top)
        sum_ref[...] = rescaled + jnp.sum(jnp.exp(x_ref[...] - top), axis=1, keepdims=True)
        top_ref[...] = top

    pl.when(phase == 0)(first_pass)

    def second_pass() -> None:
        out_ref[...] = jnp.exp(x_ref[...] - top_ref[...]) / sum_ref[...]

    pl.when(phase == 1)(second_pass)


@autotune.tunable(
    rows=[8, 32, 128], columns=[128, 256, 512], reference=lambda x: jax.nn.softmax(x, 1)
)
def two_pass_softmax(x: Any, *, rows: int = 8, columns: int = 128) -> Any:
    return pl.pallas_call(
        _softmax_body,
        grid=(x.shape[0] // rows, 2, x.shape[1] // columns),
        in_specs=[pl.BlockSpec((rows, columns), lambda i, _, j: (i, j))],
        out_specs=pl.BlockSpec((rows, columns), lambda i, p, j: (i, j * p)),
        out_shape=_like(x),
        scratch_shapes=[pltpu.VMEM((rows, 1), F32), pltpu.VMEM((rows, 1), F32)],
    )(x)


def _product_body(a_ref: Any, b_ref: Any, out_ref: Any) -> None:
    out_ref[...] = jnp.dot(a_ref[...], b_ref[...], preferred_element_type=F32)


def _product(a: Any, b: Any) -> Any:
    return jnp.dot(a, b, precision="highest")


@autotune.tunable(block_m=[8, 64, 128], block_n=[128, 256], reference=_product)
def whole_row_product(a: Any, b: Any, *, block_m: int = 64, block_n: int = 128) -> Any:
    (m, k), n = a.shape, b.shape[1]
    return pl.pallas_call(
        _product_body,
        grid=(m // block_m, n // block_n),
        in_specs=[
            pl.BlockSpec((block_m, k), lambda i, _: (i, 0)),
            pl.BlockSpec((k, block_n), lambda _, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), F32),
    )(a, b)
