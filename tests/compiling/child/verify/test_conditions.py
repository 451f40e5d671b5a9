"""A small problem takes every way that the comparisons of the real one take: a fault that begins
behind its end is seen, and the same kernel without it passes."""

import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl

from tests.compiling.child.verify.test_gate_runs import LANES, ROWS, call_of, checked, kernel

pytestmark = pytest.mark.slow
REAL = 4096
NEVER = 1 << 20


def rows_of(x):
    return lax.broadcasted_iota(jnp.int32, x.shape, 0) + pl.program_id(0) * ROWS


def some_steps(x, out, end):
    out[...] = jnp.zeros_like(out)

    @pl.when(pl.program_id(0) < end // ROWS)
    def _():
        out[...] = 2 * x[...]


def some_rows(x, out, end):
    out[...] = jnp.where(rows_of(x) < end, 2 * x[...], 0.0)


def some_turns(x, out, end):
    """Turns before this step's are nothing, those behind the end are left out."""
    step = pl.program_id(0)

    def turn(n, total):
        return total + jnp.where((n == step) & (n * ROWS < end), 2 * x[...], 0.0)

    out[...] = lax.fori_loop(0, step + 1, turn, jnp.zeros_like(x))


def rounded_rows(x, out, end):
    at = rows_of(x).astype(jnp.float32 if end == NEVER else jnp.bfloat16)
    out[...] = 2 * x[...] + 0 * at + jnp.where(at.astype(jnp.int32) == rows_of(x), 0.0, 1.0)


def shifted_rows(x, out, end):
    """From row 128 on they are negative."""
    at = jnp.left_shift(rows_of(x), 4 if end == NEVER else 24)
    out[...] = jnp.where(at >= 0, 2 * x[...], 0.0)


def doubled(body, end, last=NEVER):
    def build(rows):
        block = pl.BlockSpec((ROWS, LANES), lambda i: (jnp.minimum(i, last), 0))
        other = {"grid": (pl.cdiv(rows, ROWS),), "in_specs": [block]}
        return call_of(lambda x, out: body(x, out, end), rows, other=other)

    return build


def twice(x):
    return 2 * x


@pytest.mark.parametrize("body", [some_steps, some_rows, some_turns, rounded_rows, shifted_rows])
def test_a_fault_behind_the_end_of_a_small_problem_is_seen(body):
    verdicts = [checked(kernel(doubled(body, end), twice), REAL) for end in (80, NEVER)]
    assert [verdict.ok for verdict in verdicts] == [False, True], verdicts


def test_an_index_map_that_stops_is_seen():
    assert checked(kernel(doubled(some_rows, NEVER, last=9), twice), REAL).ok is False


def test_what_only_the_reference_compares_is_seen():
    def limited(x):
        return jnp.where(jnp.arange(x.shape[0])[:, None] < 80, 2 * x, 0.0)

    verdicts = [checked(kernel(doubled(some_rows, end), limited), REAL) for end in (80, NEVER)]
    assert [verdict.ok for verdict in verdicts] == [True, False], verdicts
