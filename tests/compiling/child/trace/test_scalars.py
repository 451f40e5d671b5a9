"""Scalars that steer a kernel: which are known, and what they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from autotune.declaring.kernel import Array
from autotune.domain.problem import make_config
from autotune_kernels.gathered_matmul import KERNEL as GATHERED
from tests.compiling.child.trace.test_reader import TILE, copied, find, of_kernel, read, tiled

F32 = jnp.float32


def test_index_maps_read_the_scalars_that_the_declaration_gives():
    """Eight groups; as many experts are fetched as the table has changes."""
    problem = GATHERED.problem_spec.parse("1024x128x128x8")
    table = GATHERED.inputs(problem)[0].values()
    (found,) = of_kernel(GATHERED, "1024x128x128x8", block_m=128, block_k=128, block_n=128)
    weights = found.operands[1]
    assert weights.fetches == 1 + int(np.count_nonzero(np.diff(table)))
    assert weights.blocks == len(set(table.tolist()))
    assert found.scalar_prefetch_bytes == 8 * 4
    assert not found.notes


def test_unknown_scalars_are_answered_with_caution():
    problem = GATHERED.problem_spec.parse("1024x128x128x8")
    config = make_config(GATHERED.default(problem), grid_order=GATHERED.grid)
    arrays = GATHERED.inputs(problem)
    blind = [Array(name="expert", shape=(8,), dtype="int32"), *arrays[1:]]
    (found,) = read(GATHERED.build(problem, config), blind)
    assert found.operands[1].fetches == found.steps
    assert any("operand 1" in note for note in found.notes)


def batched_apart(function):
    wrapped = jax.custom_batching.custom_vmap(function)
    wrapped.def_vmap(lambda *_: None)
    return wrapped


@pytest.mark.parametrize("wrap", [batched_apart, jax.checkpoint])
def test_a_grid_is_followed_through_what_only_calls(wrap):
    """A bound that follows from constants: libraries wrap their ops to see how they are batched."""

    def function(x):
        rows = jnp.sum(jnp.asarray(np.array([1, 2], np.int32)))
        return tiled(grid=(rows,))(x)

    x = [Array(name="x", shape=(32, 128), dtype="float32")]
    (found,) = read(lambda x: wrap(function)(x), x)
    assert found.grid == (3,)


def test_a_key_of_random_numbers_is_not_computed_ahead():
    """As dropout has it, of a seed that is a constant of the function."""

    def function(x):
        call = pl.pallas_call(copied, out_shape=jax.ShapeDtypeStruct(TILE, F32))
        return jax.random.normal(jax.random.key(7), TILE) + call(x)

    x = [Array(name="x", shape=TILE, dtype="float32")]
    (found,) = read(function, x)
    assert found.runs == 1


def test_scalar_operands_are_given_computed_or_constant():
    """By operand number: the table, and not the arrays that are only data."""
    problem = GATHERED.problem_spec.parse("1024x128x128x8")
    config = make_config(GATHERED.default(problem), grid_order=GATHERED.grid)
    call, arrays = GATHERED.build(problem, config), GATHERED.inputs(problem)
    given = find(call, arrays)[0].scalar_operands()
    assert {n: v.tolist() for n, v in given.items()} == {0: arrays[0].values().tolist()}
    shifted = find(lambda e, *more: call(e + 1, *more), arrays)[0].scalar_operands()
    assert shifted[0].tolist() == (arrays[0].values() + 1).tolist()
    constant = find(lambda *more: call(jnp.arange(8, dtype=jnp.int32), *more), arrays[1:])[0]
    assert constant.scalar_operands()[0].tolist() == list(range(8))


def scaled(n, x):
    """[32, 128] float32 with one integer of scalar prefetch."""

    def body(n, x, out):
        out[...] = x[...] * n[0].astype(F32)

    return tiled(body, prefetch=1)(n, x)


def looped(n, x):
    return jax.lax.fori_loop(0, 3, lambda _, carry: (carry[0] + 1, scaled(*carry)), (n, x))


def looped_while(n, x):
    turn = lambda carry: (carry[0] + 1, scaled(*carry))  # noqa: E731
    return jax.lax.while_loop(lambda carry: carry[0][0] < 9, turn, (n, x))


def chosen(n, x):
    return jax.lax.cond(x[0, 0] > 0, scaled, lambda n, x: x, n, x)


def chosen_by_a_known_number(n, x):
    return jax.lax.cond(n[0] > 5, scaled, lambda n, x: x, n + 1, x)


def differentiable(n, x):
    call = jax.custom_vjp(scaled)
    call.defvjp(lambda n, x: (scaled(n, x), ()), lambda _, g: (None, g))
    return call(n, x)


ELSEWHERE = NamedSharding(AbstractMesh((2,), ("x",)), PartitionSpec())  # on no device that is here


def placed(n, x):
    return scaled(jax.lax.with_sharding_constraint(n + 1, ELSEWHERE), x)


def placed_inside(n, x):
    inside = jax.jit(lambda n: jax.lax.with_sharding_constraint(n + 1, ELSEWHERE) + 1)
    return scaled(inside(n), x)


def placed_here(n, x):
    here = NamedSharding(AbstractMesh((1,), ("x",)), PartitionSpec())
    inside = jax.jit(lambda n: jax.lax.with_sharding_constraint(n + 1, here) + 1)
    return scaled(inside(n), x)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (looped, {}),
        (placed, {0: [8]}),
        (placed_here, {0: [9]}),
        (placed_inside, {}),
        (looped_while, {}),
        (chosen, {0: [7]}),
        (chosen_by_a_known_number, {0: [8]}),
        (jax.jit(scaled), {0: [7]}),
        (jax.remat(scaled), {0: [7]}),
        (differentiable, {0: [7]}),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_scalars_are_followed_into_a_call_and_a_branch_and_not_around_a_loop(function, expected):
    given = Array(name="n", shape=(1,), dtype="int32", values=lambda: np.array([7], np.int32))
    arrays = [given, Array(name="x", shape=(32, 128), dtype="float32")]
    (call,) = find(function, arrays)
    found = call.scalar_operands()
    assert {n: v.tolist() for n, v in found.items()} == expected


def test_integers_that_are_only_data_are_no_scalar_operands():
    """A table in SMEM is; one in HBM that fits SMEM may be copied there; blocks in VMEM are not."""

    def body(table, by_hand, large, x, out):
        out[...] = x[...] + table[0]

    block = pl.BlockSpec(TILE, lambda i: (i, 0))
    whole = pl.BlockSpec(memory_space=pl.ANY)
    call = pl.pallas_call(
        body,
        grid=(4,),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), whole, whole, block],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct((32, 128), jnp.int32),
    )
    arrays = [
        Array(name=name, shape=shape, dtype="int32", values=lambda s=shape: np.ones(s, np.int32))
        for name, shape in (("table", (8,)), ("by_hand", (9,)), ("large", (1 << 19,)))
    ]
    (found,) = find(lambda *given: call(*given, jnp.ones((32, 128), jnp.int32)), arrays)
    assert found.known[3] is not None
    assert sorted(found.scalar_operands()) == [0, 1]
