"""Packed elements on a CPU are those that a TPU would give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from autotune.compiling.child.verify.repairs import repaired


@pytest.fixture(autouse=True)
def _repaired():
    with repaired():
        yield


def numbers(dtype):
    drawn = np.random.default_rng(0).normal(scale=3e4, size=(2, 8, 128)).astype(dtype)
    return list(drawn)


@pytest.mark.parametrize(("wide", "packed"), [("float32", "bfloat16"), ("int32", "int16")])
def test_what_was_packed_lies_side_by_side_and_comes_back(wide, packed):
    parts = numbers(wide)
    narrow = [part.astype(jnp.dtype(packed)) for part in parts]
    found = jax.jit(lambda *xs: pltpu.pack_elementwise(xs, packed_dtype=jnp.dtype(packed)))(*parts)
    np.testing.assert_array_equal(np.asarray(found), np.stack(narrow, -1).view("uint32")[..., 0])
    for index, want in enumerate(narrow):
        unpacked = jax.jit(
            lambda x, index=index: pltpu.unpack_elementwise(
                x, index=index, packed_dtype=jnp.dtype(packed), unpacked_dtype=jnp.dtype(wide)
            )
        )(found)
        np.testing.assert_array_equal(np.asarray(unpacked), want.astype(wide))


@pytest.mark.parametrize("space", [pltpu.SMEM, pltpu.VMEM, pltpu.HBM], ids=str)
def test_an_array_of_any_memory_is_taken_by_the_interpreter(space):
    """``pl.kernel`` says where each is."""
    from jax._src import core
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call

    aval = core.ShapedArray((8, 128), jnp.float32, memory_space=space)
    taken = interpret_pallas_call.remove_memory_space_p.abstract_eval(aval)[0]
    assert (taken.shape, taken.memory_space) == ((8, 128), core.MemorySpace.Device)


def rounded(total):
    return total.astype(jnp.bfloat16).astype(np.float32)


@pytest.mark.parametrize(("axis", "register"), [(1, 128), (0, 16)])
def test_a_sum_is_rounded_after_each_register_and_not_after_each_number(axis, register):
    x = jnp.asarray(np.random.default_rng(1).uniform(size=(300, 300)), jnp.bfloat16)
    total = jax.jit(lambda x: jnp.sum(x, axis=axis, dtype=jnp.bfloat16))(x)
    wide = np.moveaxis(np.asarray(x, np.float32), axis, 0)
    wide = np.pad(wide, [(0, -300 % register), (0, 0)]).reshape(-1, register, 300)
    want = wide[0]
    for other in wide[1:]:
        want = rounded(want + other)
    while len(want) > 1:
        want = rounded(want[: len(want) // 2] + want[len(want) // 2 :])
    np.testing.assert_array_equal(np.asarray(total, np.float32), want[0])


def test_a_sum_of_nothing_and_a_float32_one_stay_as_they_are():
    assert (
        jax.jit(lambda x: jnp.sum(x, axis=0))(jnp.zeros((0, 4), jnp.bfloat16)).tolist() == [0] * 4
    )
    assert jax.jit(jnp.sum)(jnp.full((4096,), 0.1)) == pytest.approx(409.6, rel=1e-5)
