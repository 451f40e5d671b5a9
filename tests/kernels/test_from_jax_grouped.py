"""JAX's grouped matrix products: what is declared of them, against NumPy and in interpret mode."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune_kernels.from_jax.megablox import GMM, TGMM

Check = Callable[..., None]
BOTH = pytest.mark.parametrize("kernel", [GMM, TGMM], ids=lambda kernel: kernel.name)
SIZES = ("sizes=balanced", "sizes=skewed")


def _random(problem, kernel):
    rng = np.random.default_rng(1)
    lhs, rhs, sizes = kernel.inputs(problem)
    drawn = (rng.standard_normal(array.shape).astype(np.float32) for array in (lhs, rhs))
    return (*drawn, sizes.values())


@pytest.mark.parametrize("option", SIZES)
@pytest.mark.parametrize("transpose", [False, True])
def test_gmm_is_a_matmul_for_each_group(option, transpose):
    options = [option, f"transpose_rhs={transpose}"]
    problem = GMM.problem_spec.parse("96x24x40x5", "float32", options)
    lhs, rhs, sizes = _random(problem, GMM)
    weights = rhs.swapaxes(1, 2) if transpose else rhs
    rows = np.split(lhs, np.cumsum(sizes)[:-1])
    want = np.concatenate([part @ weights[group] for group, part in enumerate(rows)])
    for function in (GMM.reference, GMM.baseline):
        np.testing.assert_allclose(function(problem)(lhs, rhs, sizes), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("option", SIZES)
def test_tgmm_is_the_gradient_of_each_groups_weights(option):
    problem = TGMM.problem_spec.parse("96x24x40x5", "float32", [option])
    lhs, rhs, sizes = _random(problem, TGMM)
    ends = np.cumsum(sizes)
    parts = [(lhs[a:b], rhs[a:b]) for a, b in zip(ends - sizes, ends, strict=True)]
    want = np.stack([left.T @ right for left, right in parts])
    for function in (TGMM.reference, TGMM.baseline):
        np.testing.assert_allclose(function(problem)(lhs, rhs, sizes), want, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("option", SIZES)
def test_ragged_k_and_n_and_groups_that_share_a_tile(assert_right, kernel, option):
    assert_right(kernel, "256x200x130x3", "float32", option, tile_m=64)


@pytest.mark.slow
def test_transposed_weights(assert_right):
    assert_right(GMM, "128x200x130x3", "bfloat16", "transpose_rhs=true", SIZES[1])


@BOTH
@given(dims=st.tuples(*[st.integers(1, 5000)] * 3), tiles=st.integers(1, 100))
def test_choices_are_what_the_kernel_takes(kernel, dims, tiles):
    for m in (dims[0], 64 * tiles):
        problem = kernel.problem_spec.parse(f"{m}x{dims[1]}x{dims[2]}x4")
        default, impossible = kernel.default(problem), kernel.check(problem)
        for axis in kernel.axes:
            choices = list(axis.choices(problem))
            assert impossible or default[axis.name] in choices
            assert all(choice <= problem[str(axis.dim)] for choice in choices)
            assert axis.name != "tile_m" or all(m % choice == 0 for choice in choices)


@BOTH
def test_rows_that_no_tile_divides_are_refused(kernel):
    assert "m=4100 must be a multiple of 64" in str(
        kernel.check(kernel.problem_spec.parse("4100x128x128x4"))
    )
