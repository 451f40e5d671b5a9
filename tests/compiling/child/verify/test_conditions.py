"""A small problem takes every way that the comparisons of the real one take: a fault that begins
behind its end is seen, and the same kernel without it passes."""

import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

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


def by_step(of_step, of_few):
    """What is as it should be in the first steps only."""

    def body(x, out, end):
        step = pl.program_id(0)
        other = of_step(step) if end == NEVER else of_few(step)
        out[...] = 2 * x[...] + (of_step(step) - other).astype(jnp.float32)

    return body


BY_STEP = {
    "remainder": by_step(lambda n: n % 8, lambda n: n),
    "mask": by_step(lambda n: n & 7, lambda n: n),
    "cut_mask": by_step(lambda n: n & -8, jnp.zeros_like),
    "shift": by_step(lambda n: n >> 3, jnp.zeros_like),
    "clamp": by_step(lambda n: lax.clamp(0, n, 5), lambda n: n),
    "absolute": by_step(lambda n: abs(n - 4), lambda n: 4 - n),
    "int8": by_step(lambda n: n.astype(jnp.int8).astype(jnp.int32), lambda n: n),
}


def doubled(body, end, last=NEVER):
    def build(rows):
        block = pl.BlockSpec((ROWS, LANES), lambda i: (jnp.minimum(i, last), 0))
        other = {"grid": (pl.cdiv(rows, ROWS),), "in_specs": [block]}
        return call_of(lambda x, out: body(x, out, end), rows, other=other)

    return build


def twice(x):
    return 2 * x


@pytest.mark.parametrize(
    "body",
    [
        *(some_steps, some_rows, some_turns, rounded_rows, shifted_rows),
        *(pytest.param(body, id=name) for name, body in BY_STEP.items()),
    ],
)
def test_a_fault_behind_the_end_of_a_small_problem_is_seen(body):
    verdicts = [checked(kernel(doubled(body, end), twice), REAL) for end in (80, NEVER)]
    assert [verdict.ok for verdict in verdicts] == [False, True], verdicts


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_sum_of_few_bits_has_many_terms(is_stored):
    def body(x, out, total):
        @pl.when(pl.program_id(0) == 0)
        def _():
            total[...] = jnp.zeros_like(total)

        total[...] = (total[...] + x[...].astype(jnp.float32) ** 2).astype(total.dtype)
        out[...] = total[...].astype(out.dtype)

    def build(rows):
        kind = jnp.bfloat16 if is_stored else jnp.float32
        scratch = [pltpu.VMEM((ROWS, LANES), kind)]
        return call_of(body, rows, dtype="bfloat16", other={"scratch_shapes": scratch})

    def sums(x):
        blocks = x.reshape(-1, ROWS, LANES).astype(jnp.float32)
        return jnp.cumsum(blocks**2, 0).reshape(x.shape).astype(x.dtype)

    verdict = checked(kernel(build, sums, "bfloat16"), REAL)
    assert verdict.ok is not is_stored, verdict


def test_an_index_map_that_stops_is_seen():
    assert checked(kernel(doubled(some_rows, NEVER, last=9), twice), REAL).ok is False


def test_what_only_the_reference_compares_is_seen():
    def limited(x):
        return jnp.where(jnp.arange(x.shape[0])[:, None] < 80, 2 * x, 0.0)

    verdicts = [checked(kernel(doubled(some_rows, end), limited), REAL) for end in (80, NEVER)]
    assert [verdict.ok for verdict in verdicts] == [True, False], verdicts
