from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune_kernels.matmul import KERNEL

Check = Callable[..., None]
DTYPES = ("bfloat16", "float32", "int8")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transpose", ["false", "true"])
def test_ragged_on_every_axis(assert_right: Check, dtype: str, transpose: str) -> None:
    assert_right(KERNEL, "200x300x130", dtype, f"transpose_rhs={transpose}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_blocks(assert_right: Check, dtype: str) -> None:
    assert_right(KERNEL, "128x512x256", dtype, block_k=256)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_activation_comes_after_the_whole_sum(
    assert_right: Check, dtype: str, activation: str
) -> None:
    assert_right(KERNEL, "16x300x130", dtype, f"activation={activation}")


def test_relu_of_integers(assert_right: Check) -> None:
    assert_right(KERNEL, "32x300x130", "int8", "activation=relu")


@pytest.mark.slow
@pytest.mark.parametrize("order", [("m", "n", "k"), ("n", "m", "k")])
def test_both_legal_orders(assert_right: Check, order: tuple[str, ...]) -> None:
    semantics = ("parallel", "parallel", "arbitrary")
    assert_right(KERNEL, "200x300x300", "float32", order=order, semantics=semantics, block_n=256)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "transpose"), [("1x1x1", "false"), ("1x7x100", "true"), ("7x129x1", "true")]
)
def test_tiny_dimensions(assert_right: Check, dtype: str, shape: str, transpose: str) -> None:
    assert_right(KERNEL, shape, dtype, f"transpose_rhs={transpose}")


@pytest.mark.slow
@settings(max_examples=5)
@given(data=st.data(), dims=st.tuples(*[st.integers(1, 400)] * 3))
def test_any_offered_config(
    assert_right: Check, data: st.DataObject, dims: tuple[int, ...]
) -> None:
    shape = "x".join(map(str, dims))
    problem = KERNEL.problem_spec.parse(shape)
    axes = {
        axis.name: data.draw(st.sampled_from(list(axis.choices(problem)))) for axis in KERNEL.axes
    }
    assert_right(KERNEL, shape, "float32", **axes)


def test_gelu_of_integers_is_refused() -> None:
    problem = KERNEL.problem_spec.parse("8x8x8", "int8", ["activation=gelu"])
    assert KERNEL.check is not None and "gelu" in str(KERNEL.check(problem))
