"""What random numbers do not show, and what is left when a kernel has ended."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune.compiling.child.verify.numbers import special, values
from autotune.declaring.kernel import Array
from autotune.domain.evidence import FailedCheck
from tests.compiling.child.verify.test_gate_runs import by_hand, call_of, checked, kernel

pytestmark = pytest.mark.slow


def top(x, function=jnp.max):
    return jnp.broadcast_to(function(x, axis=-1, keepdims=True).astype(x.dtype), x.shape)


def last_of_equal(x):
    return x.shape[-1] - 1 - top(x[:, ::-1], jnp.argmax)


def unit(x, least):
    return x * jax.lax.rsqrt(top(x * x, jnp.mean) + least)


def scaled(x, least):
    return x / jnp.maximum(top(jnp.abs(x)), least)


CASES = {
    "a maximum that begins with zero": (top, lambda x: jnp.maximum(top(x), 0.0)),
    "a minimum that begins with zero": (
        lambda x: top(x, jnp.min),
        lambda x: jnp.minimum(top(x, jnp.min), 0.0),
    ),
    "the last of equal numbers": (lambda x: top(x, jnp.argmax), last_of_equal),
    "a root of a row of zeros": (lambda x: unit(x, 1e-6), lambda x: unit(x, 0.0)),
    "the largest of a row of zeros": (lambda x: scaled(x, 1e-9), lambda x: scaled(x, 0.0)),
    "zeros that are left out": (
        lambda x: x + 1.0,
        lambda x: jax.lax.cond(jnp.any(x != 0.0), lambda: x + 1.0, lambda: x),
    ),
}


@pytest.mark.parametrize(("right", "wrong"), CASES.values(), ids=CASES)
def test_numbers_that_random_ones_never_are(right, wrong):
    def verdict_on(function):
        def body(x, out):
            out[...] = function(x[...])

        return checked(kernel(by_hand(body), right))

    verdict = verdict_on(right)
    assert verdict.ok is True, verdict
    assert verdict_on(wrong).check is FailedCheck.SPECIAL


def test_numbers_that_the_reference_does_not_bear_are_replaced_before_a_kernel_reads_by_them():
    def body(x, out):
        first = jnp.where(jnp.any(x[...] == 0.0), 8, 0)
        out[...] = 1.0 / x[pl.ds(first, 8), :]

    verdict = checked(kernel(by_hand(body), lambda x: 1.0 / x))
    assert verdict.ok is True, verdict


def steep(x):
    return jnp.exp(22 * top(jnp.abs(x), jnp.sum) / jnp.maximum(top(x, jnp.count_nonzero), 1))


@pytest.mark.parametrize("after", [jnp.positive, steep])
def test_equal_numbers_are_rounded_alike(after):
    """The mean error of a kernel that rounds twice is that of random numbers: one half, 1 and 2 are
    off by nearly the most both times. Their sum is, too, and what is steep of it."""
    first, second = 1 + 40.49 / 128, (1 + 0.49 / 128) / (1 + 40 / 128)

    def body(x, out):
        once = (x[...].astype(jnp.float32) * first).astype(jnp.bfloat16)
        out[...] = after(once.astype(jnp.float32) * second).astype(jnp.bfloat16)

    def exact(x):
        return after(x.astype(jnp.float32) * (first * second)).astype(jnp.bfloat16)

    verdict = checked(kernel(by_hand(body, dtype=jnp.bfloat16), exact, "bfloat16"))
    assert verdict.ok is True, verdict


def one_by_one(x, columns):
    return jax.lax.fori_loop(
        1, columns, lambda i, total: total + jnp.abs(x[:, pl.ds(i, 1)]), jnp.abs(x[:, pl.ds(0, 1)])
    )


@pytest.mark.parametrize(
    ("add", "ok"),
    [
        (lambda x, _: jnp.sum(jnp.abs(x[...]), axis=1, keepdims=True, dtype=jnp.bfloat16), True),
        (one_by_one, False),
    ],
)
def test_a_sum_in_bfloat16_is_that_of_a_tpu(add, ok):
    """A CPU adds equal numbers one after another, and is 3 % off. So is a kernel that does it."""
    columns = 1024

    def build(rows):
        def body(x, out):
            out[...] = jnp.broadcast_to(add(x, columns), out.shape)

        other = {"in_specs": [pl.BlockSpec((8, columns), lambda i: (i, 0))]}
        return call_of(body, rows, dtype=jnp.bfloat16, other=other)

    made = replace(
        kernel(
            build, lambda x: top(jnp.abs(x).astype(jnp.float32), jnp.sum)[:, :128].astype(x.dtype)
        ),
        dtypes=("bfloat16",),
        inputs=lambda p: [Array(name="x", shape=(p["rows"], columns), dtype=p.dtype)],
    )
    verdict = checked(made)
    assert verdict.ok is ok, verdict


def test_booleans_are_of_both_kinds():
    """A mask that is left out was not seen: all were true."""
    drawn = values(Array(name="mask", shape=(8, 128), dtype="bool"), np.random.default_rng(0))
    assert drawn.any() and not drawn.all()


def test_no_zero_is_negative():
    """``lax.top_k`` takes zero first, and a kernel that compares them the first of both."""
    changed = special(set())(np.random.default_rng(0).standard_normal((64, 128)))
    assert not np.signbit(changed[changed == 0.0]).any()


@pytest.mark.parametrize("waits", [1, 2])
def test_what_is_signalled_is_waited_for(waits):
    def body(x, out):
        def signal(semaphore):
            pl.semaphore_signal(semaphore, 2)
            pl.semaphore_wait(semaphore, waits)

        pl.run_scoped(signal, pltpu.SemaphoreType.REGULAR)
        out[...] = x[...]

    verdict = checked(kernel(by_hand(body), lambda x: x))
    assert verdict.ok is (waits == 2), verdict
    assert verdict.ok or verdict.check is FailedCheck.SEMAPHORE
    assert verdict.ok or "of those that it allocates is 1 on device 0" in verdict.reason
