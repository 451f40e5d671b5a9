"""vector_add and tiled_dot."""

from collections.abc import Callable

import pytest

from autotune_kernels import tiled_dot, vector_add
from tests.kernels.conftest import interpret

Check = Callable[..., None]
DTYPES = ("bfloat16", "float32")
LENGTHS = (1, 1000, 3000)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", LENGTHS)
def test_vector_add(assert_right: Check, dtype: str, n: int) -> None:
    assert_right(vector_add.KERNEL, str(n), dtype)


def test_vector_add_with_a_larger_block(assert_right: Check) -> None:
    assert_right(vector_add.KERNEL, "9000", "float32", block_n=4096, semantics=("parallel",))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", LENGTHS)
def test_tiled_dot(assert_right: Check, dtype: str, n: int) -> None:
    assert_right(tiled_dot.KERNEL, str(n), dtype)


@pytest.mark.slow
@pytest.mark.parametrize("block_rows", [8, 16, 41])
def test_tiled_dot_blocks(assert_right: Check, block_rows: int) -> None:
    assert_right(tiled_dot.KERNEL, "5200", "float32", block_rows=block_rows)


def test_tiled_dot_starts_from_the_initial_sum_and_leaves_it_alone() -> None:
    run = interpret(tiled_dot.KERNEL, "5000", "float32", block_rows=8)
    x, y, initial = run.inputs
    assert abs(float(initial[0, 0])) > 0.01
    reference = tiled_dot.KERNEL.reference(run.problem)
    assert float(reference(x, y, 0 * initial)[0, 0]) != pytest.approx(float(run.got[0, 0]))
