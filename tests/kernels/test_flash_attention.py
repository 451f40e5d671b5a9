from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune_kernels.flash_attention import KERNEL

Check = Callable[..., None]
DTYPES = ("bfloat16", "float32")
SEMANTICS = ("parallel", "parallel", "parallel", "arbitrary")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", ["false", "true"])
def test_ragged_lengths(assert_right: Check, dtype: str, causal: str) -> None:
    assert_right(KERNEL, "1x2x2x200x300x64", dtype, f"causal={causal}")


@pytest.mark.slow
@pytest.mark.parametrize("causal", ["false", "true"])
def test_grouped_query_heads(assert_right: Check, causal: str) -> None:
    assert_right(KERNEL, "2x6x2x64x64x32", "float32", f"causal={causal}")


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [(128, 384), (256, 128), (384, 256)])
def test_causal_blocks_that_are_not_square(assert_right: Check, blocks: tuple[int, int]) -> None:
    block_q, block_kv = blocks
    axes = {"block_q": block_q, "block_kv": block_kv}
    assert_right(KERNEL, "1x1x1x384x512x64", "float32", "causal=true", **axes)


@pytest.mark.slow
@pytest.mark.parametrize("head_dim", [1, 100, 192])
def test_head_dimensions(assert_right: Check, head_dim: int) -> None:
    assert_right(KERNEL, f"1x1x1x64x300x{head_dim}", "float32")


@pytest.mark.slow
@pytest.mark.parametrize("order", [("batch", "head", "q", "kv"), ("q", "head", "batch", "kv")])
def test_legal_orders(assert_right: Check, order: tuple[str, ...]) -> None:
    shape = "1x2x1x200x200x32"
    assert_right(KERNEL, shape, "float32", "causal=true", order=order, semantics=SEMANTICS)


@pytest.mark.slow
@pytest.mark.parametrize("lengths", ["1x1", "1x300", "129x257"])
def test_short_lengths_and_a_last_block_of_one_key(assert_right: Check, lengths: str) -> None:
    assert_right(KERNEL, f"1x2x1x{lengths}x64", "bfloat16", "causal=true")


@pytest.mark.slow
@settings(max_examples=4)
@given(q_len=st.integers(1, 300), more=st.integers(0, 200), data=st.data())
def test_any_offered_causal_config(
    assert_right: Check, q_len: int, more: int, data: st.DataObject
) -> None:
    shape = f"1x1x1x{q_len}x{q_len + more}x16"
    problem = KERNEL.problem_spec.parse(shape)
    axes = {
        axis.name: data.draw(st.sampled_from(list(axis.choices(problem)))) for axis in KERNEL.axes
    }
    assert_right(KERNEL, shape, "float32", "causal=true", **axes)


@pytest.mark.parametrize(
    ("shape", "word"), [("1x3x2x8x8x8", "multiple"), ("1x2x2x9x8x8", "at least q_len=9")]
)
def test_impossible_problems_say_why(shape: str, word: str) -> None:
    problem = KERNEL.problem_spec.parse(shape, options=["causal=true"])
    assert KERNEL.check is not None and word in str(KERNEL.check(problem))
