"""Reading real ``pallas_call``s: nothing is compiled, JAX runs in this process on the CPU."""

import base64
import os
import re
from dataclasses import replace

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh
from tracesamples import V5E

from autotune import rules
from autotune.config import make_config
from autotune.kernel import Array
from autotune.roofline import roofline
from autotune.trace.model import trace_from_data, trace_to_data
from autotune.trace.reader import NotOnePallasCallError, all_orders, find, read
from kernels.flash_attention import KERNEL as FLASH
from kernels.gathered_matmul import KERNEL as GATHERED
from kernels.matmul import KERNEL as MATMUL
from kernels.rmsnorm import KERNEL as RMSNORM
from kernels.tiled_dot import KERNEL as TILED_DOT
from kernels.vector_add import KERNEL as VECTOR_ADD

F32 = jnp.float32
TILE = (8, 128)


def of_kernel(kernel, shape, dtype=None, *options, order=(), orders=None, **axes):
    problem = kernel.problem_spec.parse(shape, dtype, options)
    config = make_config({**kernel.default(problem), **axes}, grid_order=order or kernel.grid)
    return read(kernel.build(problem, config), kernel.inputs(problem), orders)


def of_body(body, *, grid=(4,), index=lambda *i: (i[0], 0), out_index=None, scratch=1, rows=32):
    """A kernel of [rows, 128] float32 with blocks of one tile and scratch tiles."""
    call = pl.pallas_call(
        body, grid=grid, in_specs=[pl.BlockSpec(TILE, index)],
        out_specs=pl.BlockSpec(TILE, out_index or index),
        out_shape=jax.ShapeDtypeStruct((rows, 128), F32),
        scratch_shapes=[pltpu.VMEM(TILE, F32)] * scratch,
    )  # fmt: skip
    return read(call, [Array(name="x", shape=(rows, 128), dtype="float32")])[0]


# --- shapes, visits and traffic


def test_a_matmul_is_read_whole():
    (found,) = of_kernel(
        MATMUL, "512x1024x256", "bfloat16", block_m=128, block_k=256, block_n=128
    )  # fmt: skip
    lhs, rhs, out = found.operands
    assert found.grid == (4, 2, 4)  # m, n, k
    assert (lhs.shape, lhs.block, lhs.dtype) == ((512, 1024), (128, 256), "bfloat16")
    assert (lhs.varies, rhs.varies, out.varies) == (
        (True, False, True), (False, True, True), (True, True, False),
    )  # fmt: skip
    assert (lhs.exclusive, out.exclusive) == ((True, False, True), (True, True, False))
    assert (lhs.fetches, rhs.fetches, out.fetches) == (32, 32, 8)
    assert (lhs.blocks, lhs.blocks_total) == (16, 16)
    assert (lhs.hbm_bytes, out.hbm_bytes) == (2 * 512 * 1024 * 2, 512 * 256 * 2)
    assert [op.is_output for op in found.operands] == [False, False, True]
    assert all(op.at_boundary for op in found.operands)
    assert found.io_bytes == 2 * (512 * 1024 + 1024 * 256 + 512 * 256)


def test_every_grid_order_is_read_from_one_trace():
    orders = all_orders(3)
    found = of_kernel(
        MATMUL, "512x1024x256", orders=orders, block_m=128, block_k=256, block_n=128
    )  # fmt: skip
    for order, trace in zip(orders, found, strict=True):
        names = tuple(MATMUL.grid[axis] for axis in order)
        (alone,) = of_kernel(
            MATMUL, "512x1024x256", order=names, block_m=128, block_k=256, block_n=128
        )  # fmt: skip
        assert trace == alone


def test_a_block_that_stays_is_not_fetched_again():
    (found,) = of_kernel(
        MATMUL, "512x1024x256", block_m=128, block_k=1024, block_n=256
    )  # fmt: skip
    lhs, rhs, _ = found.operands
    assert (lhs.fetches, rhs.fetches) == (4, 1)


def test_ragged_edges_move_whole_lanes_and_tiles_only():
    (found,) = of_kernel(
        MATMUL, "100x300x200", "float32", block_m=64, block_k=256, block_n=128
    )  # fmt: skip
    lhs = found.operands[0]
    assert lhs.fetches == 8  # 2 x 2 x 2
    assert lhs.hbm_bytes == 2 * (64 + 40) * (256 + 128) * 4  # 36 rows: 40; 44 columns: 128


def test_squeezed_dimensions_are_one():
    (found,) = of_kernel(FLASH, "2x4x2x256x512x128", block_q=128, block_kv=128)
    assert [op.block for op in found.operands] == [(1, 1, 128, 128)] * 4


def test_a_trace_survives_as_plain_data():
    for trace in of_kernel(GATHERED, "256x256x256x3", orders=all_orders(3)):
        assert trace_from_data(trace_to_data(trace)) == trace


def test_a_function_without_exactly_one_call_is_refused():
    x = [Array(name="x", shape=(8, 128), dtype="float32")]
    with pytest.raises(NotOnePallasCallError, match="holds 0"):
        read(lambda x: x + 1, x)
    call = pl.pallas_call(lambda x, out: None, out_shape=jax.ShapeDtypeStruct((8, 128), F32))
    with pytest.raises(NotOnePallasCallError, match="holds 2"):
        read(lambda x: call(call(x)), x)


def test_boundary_arrays_are_found_through_jit_and_lost_through_arithmetic():
    call = pl.pallas_call(lambda x, out: None, out_shape=jax.ShapeDtypeStruct((8, 128), F32))
    x = [Array(name="x", shape=(8, 128), dtype="float32")]
    for function, expected in (
        (call, [True, True]),
        (jax.jit(lambda x: jax.jit(call)(x)), [True, True]),
        (lambda x: call(x + 1), [False, True]),
        (lambda x: call(x) + 1, [True, False]),
        (jax.jit(lambda x: jax.jit(lambda y: call(y * 2))(x)), [False, True]),
    ):
        (found,) = read(function, x)
        assert [op.at_boundary for op in found.operands] == expected


# --- scalar prefetch and aliases


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


def test_scalars_computed_before_the_call_are_followed():
    problem = GATHERED.problem_spec.parse("1024x128x128x8")
    config = make_config(GATHERED.default(problem), grid_order=GATHERED.grid)
    call = GATHERED.build(problem, config)
    (found,) = read(lambda e, *more: call(e * 0 + 3, *more), GATHERED.inputs(problem))
    assert found.operands[1].blocks == 1


def test_scalar_operands_are_given_computed_or_constant():
    """By operand number: the table, and not the arrays that are only data."""
    problem = GATHERED.problem_spec.parse("1024x128x128x8")
    config = make_config(GATHERED.default(problem), grid_order=GATHERED.grid)
    call, arrays = GATHERED.build(problem, config), GATHERED.inputs(problem)
    given = find(call, arrays).scalar_operands()
    assert {n: v.tolist() for n, v in given.items()} == {0: arrays[0].values().tolist()}
    shifted = find(lambda e, *more: call(e + 1, *more), arrays).scalar_operands()
    assert shifted[0].tolist() == (arrays[0].values() + 1).tolist()
    constant = find(lambda *more: call(jnp.arange(8, dtype=jnp.int32), *more), arrays[1:])
    assert constant.scalar_operands()[0].tolist() == list(range(8))


def scaled(n, x):
    """[32, 128] float32 with one integer of scalar prefetch."""

    def body(n, x, out):
        out[...] = x[...] * n[0].astype(F32)

    spec = pl.BlockSpec(TILE, lambda i, n: (i, 0))
    return pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct((32, 128), F32),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1, grid=(4,), in_specs=[spec], out_specs=spec
        ),
    )(n, x)  # fmt: skip


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


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (looped, {}),
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
    found = find(function, arrays).scalar_operands()
    assert {n: v.tolist() for n, v in found.items()} == expected


def test_integers_that_are_only_data_are_no_scalar_operands():
    """A table in SMEM is; one in HBM that fits SMEM may be copied there; blocks in VMEM are not."""

    def body(table, by_hand, large, x, out):
        out[...] = x[...] + table[0]

    block = pl.BlockSpec(TILE, lambda i: (i, 0))
    whole = pl.BlockSpec(memory_space=pl.ANY)
    call = pl.pallas_call(
        body, grid=(4,), in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), whole, whole, block],
        out_specs=block, out_shape=jax.ShapeDtypeStruct((32, 128), jnp.int32),
    )  # fmt: skip
    arrays = [
        Array(name=name, shape=shape, dtype="int32", values=lambda s=shape: np.ones(s, np.int32))
        for name, shape in (("table", (8,)), ("by_hand", (9,)), ("large", (1 << 19,)))
    ]
    found = find(lambda *given: call(*given, jnp.ones((32, 128), jnp.int32)), arrays)
    assert found.known[3] is not None
    assert sorted(found.scalar_operands()) == [0, 1]


def test_a_traced_mesh_changes_nothing_that_is_known():
    problem = GATHERED.problem_spec.parse("1024x128x128x8")
    config = make_config(GATHERED.default(problem), grid_order=GATHERED.grid)
    call, arrays = GATHERED.build(problem, config), GATHERED.inputs(problem)
    made = lambda e: jnp.sort(jnp.where(e > 3, jnp.cumsum(e), jnp.searchsorted(e, e)))  # noqa: E731
    function = lambda e, *more: call(made(e).astype(jnp.int32) % 8, *more)  # noqa: E731
    plain, told = (find(function, arrays, mesh) for mesh in (None, use_abstract_mesh(_MESH)))
    assert told.traces(all_orders(3)) == plain.traces(all_orders(3))
    assert told.scalar_operands()[0].tolist() == plain.scalar_operands()[0].tolist()


@pytest.mark.parametrize(
    ("given", "found"),
    [(None, ("parallel", "arbitrary")), (("parallel",), ("parallel", "parallel"))],
)
def test_axes_that_vmap_adds_are_divided_between_two_cores(given, found):
    """Also when nothing is said of the others: Pallas takes those for arbitrary."""
    spec = pl.BlockSpec(TILE, lambda i: (i, 0))
    call = pl.pallas_call(
        lambda x, out: None, grid=(4,), in_specs=[spec], out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((32, 128), F32),
        compiler_params=pltpu.CompilerParams(dimension_semantics=given),
    )  # fmt: skip
    arrays = [Array(name="x", shape=(2, 32, 128), dtype="float32")]
    (two,) = read(jax.vmap(call), arrays)
    assert two.dimension_semantics == found
    assert roofline(two, replace(V5E, num_cores=2)).cores == 2
    traced = jax.jit(jax.vmap(call)).trace(jax.ShapeDtypeStruct((2, 32, 128), F32))
    text = traced.lower(lowering_platforms=("tpu",)).as_text()
    body = base64.b64decode(text.split(r"\22body\22: \22")[1].split("\\22")[0])
    assert set(re.findall(rb"dimension_semantics<(\w+)>", body)) == {w.encode() for w in found}


def test_one_kernel_alone_says_nothing_of_its_axes():
    assert of_body(lambda x, out, scratch: None).dimension_semantics == ()


def test_axes_that_vmap_adds_are_parallel_and_not_counted_by_the_body():
    """Three matmuls: as many operations each, and the sum over k is still an axis in order."""
    (one,) = of_kernel(MATMUL, "256x512x256", block_m=128, block_k=128, block_n=128)
    problem = MATMUL.problem_spec.parse("256x512x256")
    config = make_config(
        {"block_m": 128, "block_k": 128, "block_n": 128}, grid_order=MATMUL.grid,
        dimension_semantics=("parallel", "parallel", "arbitrary"),
    )  # fmt: skip
    arrays = [
        Array(name=a.name, shape=(3, *a.shape), dtype=a.dtype) for a in MATMUL.inputs(problem)
    ]
    (three,) = read(jax.vmap(MATMUL.build(problem, config)), arrays)
    assert three.grid == (3, *one.grid)
    assert three.dimension_semantics == ("parallel", "parallel", "parallel", "arbitrary")
    assert three.mxu_flops == 3 * one.mxu_flops


def test_aliases_are_numbered_as_operands():
    (found,) = of_kernel(TILED_DOT, "4096", block_rows=8)
    assert found.aliases == ((2, 3),)
    assert found.alias_safe
    assert found.operands[2].shape == found.operands[3].shape == (1, 1)


def test_aliases_are_counted_without_the_scalar_operands():
    def body(scalars, x, out):
        out[...] = x[...]

    spec = pl.BlockSpec(TILE, lambda i, scalars: (i, 0))
    call = pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct((32, 128), F32), input_output_aliases={1: 0},
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1, grid=(4,), in_specs=[spec], out_specs=spec
        ),
    )  # fmt: skip
    scalars = Array(name="scalars", shape=(4,), dtype="int32")
    (found,) = read(call, [scalars, Array(name="x", shape=(32, 128), dtype="float32")])
    assert found.aliases == ((0, 1),)
    assert found.scalar_operands == 1


@pytest.mark.parametrize(("shift", "safe"), [(0, True), (1, False)])
def test_an_alias_is_safe_when_both_visit_the_same_blocks(shift, safe):
    def body(x, out):
        out[...] = x[...]

    call = pl.pallas_call(
        body, grid=(4,), in_specs=[pl.BlockSpec(TILE, lambda i: (jnp.maximum(i - shift, 0), 0))],
        out_specs=pl.BlockSpec(TILE, lambda i: (i, 0)), input_output_aliases={0: 0},
        out_shape=jax.ShapeDtypeStruct((32, 128), F32),
    )  # fmt: skip
    (found,) = read(call, [Array(name="x", shape=(32, 128), dtype="float32")])
    assert found.alias_safe == safe


# --- what a scratch carries


def running(reset):
    def body(x, out, total):
        @pl.when(reset())
        def _():
            total[...] = jnp.zeros_like(total)

        total[...] += x[...]
        out[...] = total[...]

    return body


@pytest.mark.parametrize(
    ("reset", "axes"),
    [
        (lambda: pl.program_id(1) == 0, (1,)),
        (lambda: pl.program_id(0) == 0, (0,)),
        (lambda: (pl.program_id(0) == 0) & (pl.program_id(1) == 0), (0, 1)),
        (lambda: pl.program_id(1) == 1, None),
        (lambda: pl.program_id(1) < 2, None),
        (lambda: pl.program_id(0) + pl.program_id(1) == 0, (0, 1)),
    ],
)
def test_a_carried_scratch_has_the_axes_of_its_reset(reset, axes):
    found = of_body(running(reset), grid=(2, 3), index=lambda i, j: (i, 0))
    assert found.scratch[0].carried
    assert found.scratch[0].reset_axes == axes


def test_a_scratch_written_before_it_is_read_is_not_carried():
    def body(x, out, total):
        total[...] = x[...]
        out[...] = total[...] * 2

    found = of_body(body)
    assert not found.scratch[0].carried
    assert found.scratch[0].reset_axes == ()


def test_a_scratch_never_written_afresh_is_carried_without_reset():
    def body(x, out, total):
        total[...] += x[...]
        out[...] = total[...]

    assert of_body(body).scratch[0].reset_axes is None


def test_a_scratch_written_in_both_branches_is_not_carried():
    def body(x, out, total):
        first = pl.program_id(0) == 0
        jax.lax.cond(first, lambda: total.__setitem__(..., x[...]),
                     lambda: total.__setitem__(..., -x[...]))  # fmt: skip
        out[...] = total[...]

    assert not of_body(body).scratch[0].carried


def test_reading_in_a_loop_counts_as_reading():
    def body(x, out, total):
        def turn(_, value):
            return value + total[...]

        out[...] = jax.lax.fori_loop(0, 3, turn, x[...])
        total[...] = x[...]

    assert of_body(body).scratch[0].carried


def test_each_scratch_is_judged_alone():
    def body(x, out, kept, local):
        local[...] = x[...]
        kept[...] += local[...]
        out[...] = kept[...]

    found = of_body(body, scratch=2)
    assert [s.carried for s in found.scratch] == [True, False]


@pytest.mark.parametrize(
    ("kernel", "shape", "prefix"),
    [
        (MATMUL, "512x512x512", 2),
        (FLASH, "2x2x2x512x512x128", 3),
        (GATHERED, "512x512x512x4", 2),
        (RMSNORM, "1024x1024", 1),
        (VECTOR_ADD, "100000", 1),
        (TILED_DOT, "100000", 0),
    ],
)
def test_the_parallel_axes_of_the_catalogue(kernel, shape, prefix):
    assert rules.parallel_prefix(of_kernel(kernel, shape)[0]) == prefix


# --- work


def test_flops_of_a_matmul_are_those_of_its_blocks():
    (found,) = of_kernel(MATMUL, "512x1024x256", block_m=128, block_k=256, block_n=128)
    assert found.mxu_flops == 2 * 512 * 1024 * 256
    assert found.mxu_dtype == "bfloat16"


def test_a_ragged_tail_is_weighted_by_how_often_it_runs():
    (found,) = of_kernel(MATMUL, "128x300x128", block_m=128, block_k=128, block_n=128)
    assert found.mxu_flops == 2 * 128 * 300 * 128


def test_blocks_above_the_diagonal_do_no_work():
    (full,) = of_kernel(FLASH, "1x1x1x512x512x128", block_q=128, block_kv=128)
    (causal,) = of_kernel(
        FLASH, "1x1x1x512x512x128", None, "causal=true", block_q=128, block_kv=128
    )  # fmt: skip
    assert full.mxu_flops == 4 * 512 * 512 * 128
    assert causal.mxu_flops == full.mxu_flops * 10 // 16
    assert causal.operands[1].hbm_bytes < full.operands[1].hbm_bytes


@pytest.mark.parametrize(
    ("condition", "share"),
    [
        (lambda: pl.program_id(0) == 0, 1 / 8),
        (lambda: pl.program_id(0) < 2, 2 / 8),
        (lambda: pl.program_id(0) % 2 == 1, 4 / 8),
        (lambda: pl.program_id(0) == pl.num_programs(0) - 1, 1 / 8),
        (lambda: (pl.program_id(0) > 0) & (pl.program_id(0) <= 3), 3 / 8),
        (lambda: pl.program_id(0) > 99, 0),
    ],
)
def test_conditional_work_has_the_weight_of_its_steps(condition, share):
    def body(x, out, total):
        @pl.when(condition())
        def _():
            out[...] = jnp.dot(x[:, :8], x[...], preferred_element_type=F32)

    found = of_body(body, grid=(8,), rows=64)
    assert found.mxu_flops == round(8 * share * 2 * 8 * 8 * 128)


def test_work_in_a_loop_counts_once_a_turn():
    def body(x, out, total):
        out[...] = jax.lax.fori_loop(0, 5, lambda _, v: v + jnp.dot(x[:, :8], v), x[...])

    found = of_body(body, grid=(4,))
    assert found.mxu_flops == 4 * 5 * 2 * 8 * 8 * 128


@pytest.mark.parametrize(
    ("kernel", "shape", "axes", "kept"),
    [
        (FLASH, "1x1x1x2048x2048x128", {"block_q": 256, "block_kv": 1024}, 256 * 1024 * 4),
        (FLASH, "1x1x1x2048x2048x128", {"block_q": 1024, "block_kv": 512}, 0),  # narrow rows
        (FLASH, "1x1x1x256x700x128", {"block_q": 128, "block_kv": 4096}, 128 * 700 * 4),
        (MATMUL, "2048x2048x2048", {"block_m": 1024, "block_n": 1024}, 0),  # nothing is reduced
        (RMSNORM, "2048x4096", {}, 0),  # no matrix product
    ],
)
def test_scores_are_kept_for_their_softmax(kernel, shape, axes, kept):
    """A branch that is never taken keeps nothing: 700 keys lie in a block of 4096."""
    assert of_kernel(kernel, shape, **axes)[0].kept_bytes == kept


@pytest.mark.parametrize(
    ("use", "kept"),
    [
        (lambda s: s - jnp.max(s, axis=1, keepdims=True), True),
        (lambda s: jnp.exp(s * 2 - jnp.sum(jnp.abs(s), axis=1, keepdims=True)), True),
        (lambda s: s + jnp.broadcast_to(jnp.max(s, axis=1, keepdims=True), s.shape), True),
        (lambda s: jnp.broadcast_to(jnp.max(s, axis=1, keepdims=True), s.shape), False),
        (lambda s: s * 2 + 1, False),
    ],
)
def test_a_product_is_kept_when_it_meets_its_own_reduction(use, kept):
    def body(x, y, out):
        out[...] = use(jnp.dot(x[...], y[...], preferred_element_type=F32))

    shapes = {"x": (64, 128), "y": (128, 1024), "out": (64, 1024)}
    call = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(shapes["out"], F32))
    arrays = [Array(name=n, shape=shapes[n], dtype="float32") for n in ("x", "y")]
    assert read(call, arrays)[0].kept_bytes == (64 * 1024 * 4 if kept else 0)


# --- JAX's own check of block shapes

SIZES = (
    1,
    3,
    7,
    8,
    12,
    16,
    64,
    100,
    128,
    129,
    192,
    200,
    256,
    384,
    512,
    640,
    1000,
    1024,
    1536,
    3072,
)
_MESH = AbstractMesh((1,), ("d",), abstract_device=AbstractDevice("TPU v5 lite", 1, "tpu"))


def jax_accepts(shape, block, dtype):
    """Whether Pallas lowers a copy with this block for a TPU: no compiler is asked."""
    grid = tuple(-(-s // b) for s, b in zip(shape, block, strict=True))
    spec = pl.BlockSpec(block, lambda *i: i)
    out = jax.ShapeDtypeStruct(shape, dtype)
    call = pl.pallas_call(lambda x, out: None, grid=grid, in_specs=[spec], out_specs=spec,
                          out_shape=out)  # fmt: skip
    try:
        with use_abstract_mesh(_MESH):
            jax.jit(call).trace(out).lower(lowering_platforms=("tpu",))
    except ValueError as error:
        assert "The Pallas TPU lowering currently requires" in str(error)
        return False
    return True


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(SIZES), st.sampled_from(SIZES)), min_size=1, max_size=3),
    st.sampled_from(("float32", "bfloat16", "int8", "bool")),
)
def test_alignment_is_what_jax_itself_checks(sizes, dtype):
    shape = tuple(size for size, _ in sizes)
    block = tuple(min(size, part) for size, part in sizes)
    call = pl.pallas_call(
        lambda x, out: None, grid=tuple(-(-s // b) for s, b in zip(shape, block, strict=True)),
        in_specs=[pl.BlockSpec(block, lambda *i: i)], out_specs=pl.BlockSpec(block, lambda *i: i),
        out_shape=jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)),
    )  # fmt: skip
    (found,) = read(call, [Array(name="x", shape=shape, dtype=dtype)])
    assert (rules.misaligned(found, V5E) is None) == jax_accepts(shape, block, jnp.dtype(dtype))
