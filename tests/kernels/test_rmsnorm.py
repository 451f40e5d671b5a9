from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune_kernels.rmsnorm import KERNEL

Check = Callable[..., None]
DTYPES = ("bfloat16", "float32")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk", [128, 256, 700])
def test_ragged_rows_and_chunks(assert_right: Check, dtype: str, chunk: int) -> None:
    assert_right(KERNEL, "20x700", dtype, block_rows=8, block_features=chunk)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ["1x1", "100x100", "8x1024"])
def test_default_config(assert_right: Check, dtype: str, shape: str) -> None:
    assert_right(KERNEL, shape, dtype)


@pytest.mark.slow
@settings(max_examples=4)
@given(rows=st.integers(1, 40), features=st.integers(1, 900), data=st.data())
def test_any_offered_config(
    assert_right: Check, rows: int, features: int, data: st.DataObject
) -> None:
    shape = f"{rows}x{features}"
    problem = KERNEL.problem_spec.parse(shape)
    axes = {
        axis.name: data.draw(st.sampled_from(list(axis.choices(problem)))) for axis in KERNEL.axes
    }
    assert_right(KERNEL, shape, "float32", **axes)
