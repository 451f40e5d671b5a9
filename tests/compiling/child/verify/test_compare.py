"""What counts as right: an element that is off, lost precision, by dtype and length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.compiling.child.verify.compare import compare
from autotune.compiling.child.verify.tolerance import Errors, allowed_errors, reduction_length

F32 = np.dtype("float32")
BF16 = np.dtype(jnp.bfloat16)
EXACT = Errors(share=0.0, mean_share=0.0)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def allowed(dtype, length=1, natural=None):
    return [allowed_errors([dtype], length, natural)]


def test_one_element_that_is_off_is_found_and_named():
    want = normal(64, 32)
    got = want.copy()
    got[7, 3] += 1e-3
    found = compare([got], [want], allowed(F32))
    assert (found.check, found.where) == ("values", "output 0 at (7, 3)")
    assert found.error > 1
    assert f"{got[7, 3]} instead of {want[7, 3]}" in found.reason


def test_nan_where_a_number_is_expected_is_uninitialised_memory():
    want, got = normal(8, 128), normal(8, 128)
    got[2, 5] = np.nan
    found = compare([got], [want], allowed(F32))
    assert (found.check, found.where) == ("uninitialised memory", "output 0 at (2, 5)")
    assert compare([got], [got], allowed(F32)).check == ""  # as the reference has it


def test_infinities_must_be_the_same():
    want = np.array([np.inf, -np.inf, 1.0], np.float32)
    assert compare([want], [want], allowed(F32)).check == ""
    assert compare([-want], [want], allowed(F32)).check == "values"


@pytest.mark.parametrize("dtype", ["int8", "int32", "bool"])
def test_integers_are_exact(dtype):
    want = np.ones((8, 8), dtype)
    got = want.copy()
    got[1, 1] = 0
    assert compare([got], [want], [EXACT]).check == "values"
    assert compare([want], [want], [EXACT]) == compare([want.copy()], [want], [EXACT])


@pytest.mark.parametrize(
    ("got", "says"),
    [
        (np.zeros((4, 4), np.float32), "output 0 has the shape (4, 4), the reference (4, 8)"),
        (np.zeros((4, 8), np.int32), "output 0 is int32, the reference float32"),
    ],
)
def test_other_outputs(got, says):
    found = compare([got], [np.zeros((4, 8), np.float32)], allowed(F32))
    assert (found.check, found.reason) == ("outputs", says)
    assert "2 outputs, the reference has 1" in compare([got, got], [got], allowed(F32)).reason


def product(blocks, accumulator):
    """A bfloat16 product of 512 terms, summed block by block in ``accumulator``."""
    a, b = normal(128, 512).astype(BF16), normal(512, 128, seed=1).astype(BF16)
    out = np.zeros((128, 128), accumulator)
    step = 512 // blocks
    for start in range(0, 512, step):
        part = a[:, start : start + step].astype(F32) @ b[start : start + step].astype(F32)
        out = (out.astype(F32) + part).astype(accumulator)
    return out.astype(BF16)


@pytest.mark.parametrize("blocks", [4, 8])
def test_sums_in_bfloat16_lose_precision_and_sums_in_float32_do_not(blocks):
    want = product(1, F32)
    limits = allowed(BF16, 512, natural=EXACT)
    assert compare([product(blocks, F32)], [want], limits).check == ""
    assert compare([product(blocks, BF16)], [want], limits).check == "precision"


def test_a_float32_product_of_rounded_operands_is_off():
    a, b = normal(128, 512), normal(512, 128, seed=1)
    want, got = a @ b, a.astype(BF16).astype(F32) @ b
    assert compare([got], [want], allowed(F32, 512)).check == "values"
    assert compare([(b.T @ a.T).T], [want], allowed(F32, 512)).check == ""


def test_the_error_of_plain_xla_widens_what_is_allowed():
    off = Errors(share=0.03, mean_share=0.01)
    tight, wide = (allowed_errors([BF16], 1, natural) for natural in (EXACT, off))
    assert tight.mean_share < 0.01 < wide.mean_share == 0.02
    assert tight.share < 0.03 < wide.share == 0.06
    unknown = allowed_errors([BF16], 1, None)
    assert unknown.mean_share > tight.mean_share
    both = allowed_errors([BF16], 1, None, has_reference=False)
    assert both.mean_share == 2.0 * unknown.mean_share and both.share == unknown.share


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_an_element_that_plain_xla_gets_wrong_hides_no_zero(dtype):
    want = np.abs(normal(16, 128)).astype(dtype) + dtype.type(1)
    got = want.copy()
    got[3, 5] = 0
    bad = Errors(share=0.5, mean_share=0.1)
    assert compare([got], [want], allowed(dtype, 512, natural=bad)).check == "values"


def test_the_coarsest_floating_dtype_decides_and_integers_do_not():
    assert allowed_errors([F32, BF16], 1, None) == allowed_errors([BF16], 1, None)
    assert allowed_errors([np.dtype("int8"), F32], 1, None) == allowed_errors([F32], 1, None)
    assert allowed_errors([np.dtype("int32")], 99, None) == EXACT


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_longer_sums_may_differ_more(a, b):
    short, long = (allowed_errors([F32], n, None).share for n in sorted((a, b)))
    assert short <= long


@pytest.mark.parametrize(
    ("function", "length"),
    [
        (lambda x: x + 1, 1),
        (lambda x: x @ x.T, 48),
        (lambda x: x.sum(), 16 * 48),
        (lambda x: x.sum(axis=0), 16),
        (lambda x: jnp.cumsum(x, axis=1), 48),
        (lambda x: jax.jit(lambda y: y @ y.T)(x), 48),
        (lambda x: jax.lax.scan(lambda c, r: (c + r.sum(), None), 0.0, x)[0], 16 * 48),
    ],
)
def test_the_longest_sum_of_a_reference(function, length):
    assert reduction_length(function, [normal(16, 48)]) == length
