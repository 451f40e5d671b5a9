from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from autotune.domain.config import make_config
from autotune_kernels.gathered_matmul import KERNEL

Check = Callable[..., None]
DTYPES = ("bfloat16", "float32")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_m", [16, 128])
def test_blocks_smaller_than_a_group(assert_right: Check, dtype: str, block_m: int) -> None:
    assert_right(KERNEL, "300x200x130x5", dtype, block_m=block_m)


@pytest.mark.slow
@pytest.mark.parametrize("order", [("n", "m", "k"), ("m", "n", "k")])
def test_both_legal_orders(assert_right: Check, order: tuple[str, ...]) -> None:
    semantics = ("parallel", "parallel", "arbitrary")
    assert_right(KERNEL, "300x300x200x3", "float32", order=order, semantics=semantics)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ["1x1x1x1", "100x129x100x3", "129x8x8x9"])
def test_tiny_dimensions(assert_right: Check, dtype: str, shape: str) -> None:
    assert_right(KERNEL, shape, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("group", ["256", "512"])
def test_groups_larger_than_the_default_block(assert_right: Check, group: str) -> None:
    assert_right(KERNEL, "700x100x100x4", "float32", f"group={group}", block_m=128)


def test_a_group_is_all_there_is_when_tokens_are_few() -> None:
    problem = KERNEL.problem_spec.parse("200x8x8x2", options=["group=256"])
    assert KERNEL.default(problem)["block_m"] == 200


def test_experts_in_any_order() -> None:
    problem = KERNEL.problem_spec.parse("512x64x64x3", "float32")
    rng = np.random.default_rng(0)
    rows = jnp.asarray(rng.standard_normal((512, 64)), jnp.float32)
    weights = jnp.asarray(rng.standard_normal((3, 64, 64)), jnp.float32)
    expert = jnp.asarray([2, 0, 1, 0], jnp.int32)
    config = make_config({**KERNEL.default(problem), "block_m": 64})
    with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams()):
        got = KERNEL.build(problem, config)(expert, rows, weights)
    each = [rows[128 * i : 128 * (i + 1)] @ weights[e] for i, e in enumerate([2, 0, 1, 0])]
    np.testing.assert_allclose(got, jnp.concatenate(each), rtol=1e-5, atol=1e-4)
