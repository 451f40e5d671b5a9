"""Reading real ``pallas_call``s: nothing is compiled, JAX runs in this process on the CPU."""

import base64
import json
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from autotune.compiling.child.trace import block_fetches
from autotune.compiling.child.trace import pallas_call as reader
from autotune.compiling.child.trace.pallas_call import (
    NoPallasCallError,
    NotTunableError,
    all_orders,
)
from autotune.declaring.kernel import Array
from autotune.domain.codec import from_data, to_data
from autotune.domain.problem import make_config
from autotune.domain.trace import Trace
from autotune.estimating import legality
from autotune.estimating.roofline import roofline
from autotune_kernels.flash_attention import KERNEL as FLASH
from autotune_kernels.gathered_matmul import KERNEL as GATHERED
from autotune_kernels.matmul import KERNEL as MATMUL
from autotune_kernels.rmsnorm import KERNEL as RMSNORM
from autotune_kernels.tiled_dot import KERNEL as TILED_DOT
from autotune_kernels.vector_add import KERNEL as VECTOR_ADD
from tests.samples.traces import V5E

F32 = jnp.float32
TILE = (8, 128)


def find(function, arrays):
    """The calls of a function."""
    return reader.calls(jax.make_jaxpr(function)(*reader.abstract(arrays)), arrays)


def read(function, arrays, orders=None):
    """The traces of a function, as the child reads them."""
    return reader.traces(find(function, arrays), orders)


def of_kernel(kernel, shape, dtype=None, *options, order=(), orders=None, **axes):
    problem = kernel.problem_spec.parse(shape, dtype, options)
    config = make_config({**kernel.default(problem), **axes}, grid_order=order or kernel.grid)
    return read(kernel.build(problem, config), kernel.inputs(problem), orders)


def copied(x, out):
    out[...] = x[...]


def tiled(body=copied, *, grid=(4,), index=lambda *i: (i[0], 0), rows=32, prefetch=0, **more):
    """A call on [rows, 128] float32 in blocks of one tile, behind so many scalar operands."""
    block = pl.BlockSpec(TILE, index)
    specs = {"grid": grid, "in_specs": [block], "out_specs": block}
    if prefetch:
        specs = {"grid_spec": pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=prefetch, **specs)}
    out = jax.ShapeDtypeStruct((rows, 128), F32)
    return pl.pallas_call(body, out_shape=out, **specs | more)


def of_body(body, *, scratch=1, rows=32, **more):
    """The trace of such a kernel, with scratch tiles."""
    call = tiled(body, rows=rows, scratch_shapes=[pltpu.VMEM(TILE, F32)] * scratch, **more)
    return read(call, [Array(name="x", shape=(rows, 128), dtype="float32")])[0]


# --- shapes, visits and traffic


@pytest.mark.parametrize(("bound", "steps"), [(1, 5), (9, 9)])
def test_a_grid_that_data_decide_is_as_long_as_the_list_that_it_walks(bound, steps):
    """As megablox does: as many steps as there are tiles, at most those that the list has."""

    def walked(count, pages, tiles, x):
        call = tiled(
            lambda pages_ref, tiles_ref, *refs: copied(*refs),
            grid=(count,),
            index=lambda i, pages, tiles: (tiles[i], 0),
            prefetch=2,
        )
        return call(pages, tiles, x)

    shapes = {"count": (), "pages": (4096,), "tiles": (5,)}
    arrays = [Array(name=name, shape=shape, dtype="int32") for name, shape in shapes.items()]
    arrays.append(Array(name="x", shape=(32, 128), dtype="float32"))
    jaxpr = jax.make_jaxpr(walked)(*reader.abstract(arrays))
    with pytest.raises(ValueError, match="the grid is dynamic"):
        reader.calls(jaxpr, arrays)
    (call,) = reader.calls(jaxpr, arrays, bound)
    assert (call.grid, call.is_unsized) == ((steps,), True)


def test_of_a_step_what_cannot_be_read_hides_no_other_call():
    def both(x):
        out = jax.ShapeDtypeStruct(x.shape, F32)
        copied = pl.pallas_call(lambda a, b: b.__setitem__(..., a[...]), out_shape=out, name="copy")
        return pl.pallas_call(lambda a, b: None, out_shape=out, debug=True)(copied(x))

    arrays = [Array(name="x", shape=(32, 128), dtype="float32")]
    jaxpr = jax.make_jaxpr(both)(*reader.abstract(arrays))
    assert [call.name for call in reader.calls(jaxpr, arrays, bound=1)] == ["copy"]
    with pytest.raises(reader.NotTunableError, match="debug=True"):
        reader.calls(jaxpr, arrays)


def test_a_matmul_is_read_whole():
    (found,) = of_kernel(MATMUL, "512x1024x256", "bfloat16", block_m=128, block_k=256, block_n=128)
    lhs, rhs, out = found.operands
    assert found.grid == (4, 2, 4)  # m, n, k
    assert (lhs.shape, lhs.block, lhs.dtype) == ((512, 1024), (128, 256), "bfloat16")
    assert (lhs.varies, rhs.varies, out.varies) == (
        (True, False, True),
        (False, True, True),
        (True, True, False),
    )
    assert (lhs.exclusive, out.exclusive) == ((True, False, True), (True, True, False))
    assert (lhs.fetches, rhs.fetches, out.fetches) == (32, 32, 8)
    assert (lhs.blocks, lhs.blocks_total) == (16, 16)
    assert (lhs.hbm_bytes, out.hbm_bytes) == (2 * 512 * 1024 * 2, 512 * 256 * 2)
    assert [op.is_output for op in found.operands] == [False, False, True]
    assert all(op.at_boundary for op in found.operands)
    assert found.io_bytes == 2 * (512 * 1024 + 1024 * 256 + 512 * 256)


def test_every_grid_order_is_read_from_one_trace():
    orders = all_orders(3)
    found = of_kernel(MATMUL, "512x1024x256", orders=orders, block_m=128, block_k=256, block_n=128)
    for order, trace in zip(orders, found, strict=True):
        names = tuple(MATMUL.grid[axis] for axis in order)
        (alone,) = of_kernel(
            MATMUL, "512x1024x256", order=names, block_m=128, block_k=256, block_n=128
        )
        assert trace == alone


def test_a_block_that_stays_is_not_fetched_again():
    (found,) = of_kernel(MATMUL, "512x1024x256", block_m=128, block_k=1024, block_n=256)
    lhs, rhs, _ = found.operands
    assert (lhs.fetches, rhs.fetches) == (4, 1)


def test_ragged_edges_move_whole_lanes_and_tiles_only():
    (found,) = of_kernel(MATMUL, "100x300x200", "float32", block_m=64, block_k=256, block_n=128)
    lhs = found.operands[0]
    assert lhs.fetches == 8  # 2 x 2 x 2
    assert lhs.hbm_bytes == 2 * (64 + 40) * (256 + 128) * 4  # 36 rows: 40; 44 columns: 128


@pytest.mark.parametrize("switch", ["interpret", "debug"])
def test_what_the_author_left_in_is_named(switch):
    x = [Array(name="x", shape=TILE, dtype="float32")]
    call = tiled(grid=(1,), rows=8, **{switch: True})
    with pytest.raises(NotTunableError, match=f"^pallas_call of copied has {switch}=True: remove"):
        read(call, x)


def on_sparse_cores(x):
    from jax.experimental.pallas import tpu_sc

    mesh = tpu_sc.VectorSubcoreMesh(core_axis_name="c", subcore_axis_name="s", num_cores=2)
    return pl.kernel(pltpu.sync_copy, jax.ShapeDtypeStruct(x.shape, x.dtype), mesh=mesh)(x)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x + 1, "holds no pallas_call: there is nothing to tune"),
        pytest.param(
            on_sparse_cores,
            "for SparseCores: `autotune collect` lists it",
            marks=pytest.mark.skipif(not hasattr(pl, "kernel"), reason="this JAX has none"),
        ),
    ],
)
def test_a_function_without_a_call_is_refused(function, words):
    x = [Array(name="x", shape=(8, 128), dtype="float32")]
    with_cores = MESH.update(abstract_device=AbstractDevice("TPU v6 lite", 1, "tpu"))
    with use_abstract_mesh(with_cores), pytest.raises(NoPallasCallError, match=words):
        read(function, x)


def copying(rows, name):
    block = pl.BlockSpec((rows, 128), lambda i: (i, 0))
    return tiled(grid=(32 // rows,), in_specs=[block], out_specs=block, name=name)


def test_each_of_several_calls_has_its_own_trace():
    x = [Array(name="x", shape=(32, 128), dtype="float32")]
    (found,) = read(lambda x: copying(16, "second")(copying(8, "first")(x)), x)
    assert [(call.name, call.grid, call.runs) for call in found.calls] == [
        ("first", (4,), 1),
        ("second", (2,), 1),
    ]
    assert [call.io_bytes for call in found.calls] == [2 * 32 * 128 * 4] * 2
    assert from_data(Trace, json.loads(json.dumps(to_data(found)))) == found


@pytest.mark.parametrize(
    ("which", "runs"), [([1], {"right": 1, "looped": 3}), (None, {"left": None, "right": None})]
)
def test_how_often_a_call_runs(which, runs):
    """A branch that the given integers choose, and a loop of a given length."""

    def function(which, x):
        choose = lambda name: lambda x: copying(8, name)(x)  # noqa: E731
        x = jax.lax.cond(which[0] > 0, choose("right"), choose("left"), x)
        return jax.lax.scan(lambda x, _: (copying(8, "looped")(x), None), x, None, length=3)[0]

    values = None if which is None else lambda: np.array(which, np.int32)
    arrays = [
        Array(name="which", shape=(1,), dtype="int32", values=values),
        Array(name="x", shape=(32, 128), dtype="float32"),
    ]
    (found,) = read(function, arrays)
    assert {call.name: call.runs for call in found.calls} == {"looped": 3, **runs}


def test_what_a_loop_closes_over_is_known_in_it_and_what_it_carries_is_not():
    order = np.array([1, 0], np.int32)

    def function(x, count):
        fixed = jnp.asarray(order) + 1

        def turn(carried, _):
            inner, number = carried
            moved = jnp.full(2, number)
            call = tiled(lambda *refs: None, grid=(2,), rows=16, prefetch=2)
            return (call(fixed, moved, inner), number + 1), None

        return jax.lax.scan(turn, (x, count), None, length=3)[0]

    arrays = [
        Array(name="x", shape=(16, 128), dtype="float32"),
        Array(name="count", shape=(), dtype="int32"),
    ]
    (call,) = find(function, arrays)
    ((number, value),) = call.scalar_operands().items()
    assert (number, value.tolist()) == (0, [2, 1])


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


@pytest.mark.parametrize("batch", [(), (1,)])
def test_a_result_that_nobody_takes_is_unread(batch):
    """Also under ``vmap``, which gives all results its axis."""

    def body(x_ref, shared_ref, out_ref):
        shared_ref[...] = out_ref[...] = x_ref[...]

    blocks = [pl.BlockSpec(TILE, lambda i: (0, 0)), pl.BlockSpec(TILE, lambda i: (i, 0))]
    shapes = [jax.ShapeDtypeStruct((rows, 128), F32) for rows in (8, 32)]
    call = pl.pallas_call(body, grid=(4,), in_specs=blocks[1:], out_specs=blocks, out_shape=shapes)
    function = jax.vmap(lambda x: call(x)[1]) if batch else lambda x: call(x)[1]
    (one,) = read(function, [Array(name="x", shape=(*batch, 32, 128), dtype="float32")])
    assert [op.is_unread for op in one.operands] == [False, True, False]


# --- scalar prefetch and aliases


@pytest.mark.parametrize(
    ("given", "found"),
    [(None, ("parallel", "arbitrary")), (("parallel",), ("parallel", "parallel"))],
)
def test_axes_that_vmap_adds_are_divided_between_two_cores(given, found):
    """Also when nothing is said of the others: Pallas takes those for arbitrary."""
    params = pltpu.CompilerParams(dimension_semantics=given)
    call = tiled(lambda x, out: None, compiler_params=params)
    arrays = [Array(name="x", shape=(2, 32, 128), dtype="float32")]
    (two,) = read(jax.vmap(call), arrays)
    assert two.dimension_semantics == found
    assert roofline(two, replace(V5E, num_cores=2)).cores == 2
    traced = jax.jit(jax.vmap(call)).trace(jax.ShapeDtypeStruct((2, 32, 128), F32))
    text = traced.lower(lowering_platforms=("tpu",)).as_text()
    body = base64.b64decode(text.split(r"\22body\22: \22")[1].split("\\22")[0])
    assert set(re.findall(rb"dimension_semantics<(\w+)>", body)) == {w.encode() for w in found}


def test_axes_that_vmap_adds_are_parallel_and_not_counted_by_the_body():
    """Three matmuls: as many operations each, and the sum over k is still an axis in order."""
    (one,) = of_kernel(MATMUL, "256x512x256", block_m=128, block_k=128, block_n=128)
    problem = MATMUL.problem_spec.parse("256x512x256")
    config = make_config(
        {"block_m": 128, "block_k": 128, "block_n": 128},
        grid_order=MATMUL.grid,
        dimension_semantics=("parallel", "parallel", "arbitrary"),
    )
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
    call = tiled(lambda _, *refs: copied(*refs), prefetch=1, input_output_aliases={1: 0})
    scalars = Array(name="scalars", shape=(4,), dtype="int32")
    (found,) = read(call, [scalars, Array(name="x", shape=(32, 128), dtype="float32")])
    assert found.aliases == ((0, 1),)
    assert found.scalar_operands == 1


@pytest.mark.parametrize(("steps", "shift", "safe"), [(4, 0, True), (4, 1, False), (0, 0, True)])
def test_an_alias_is_safe_when_both_visit_the_same_blocks(steps, shift, safe):
    shifted = [pl.BlockSpec(TILE, lambda i: (jnp.maximum(i - shift, 0), 0))]
    call = tiled(grid=(steps,), in_specs=shifted, input_output_aliases={0: 0})
    (found,) = read(call, [Array(name="x", shape=(32, 128), dtype="float32")])
    assert found.alias_safe == safe


@pytest.mark.parametrize(("slots", "most", "safe"), [(2, 7, False), (3, 7, True), (3, 6, False)])
def test_a_sum_that_goes_on_in_its_own_memory_is_safe_once_it_is_there(
    slots, most, safe, monkeypatch
):
    """Attention's gradient, on a grid of so many steps as data say: it adds to what stands in one
    of the slots, and comes back to it that many steps later; of more steps nobody knows."""
    monkeypatch.setattr(block_fetches, "MAX_ENUMERATED_STEPS", most)

    def body(scalars, x, out):
        out[...] = x[...] + 1

    def summed(steps, scalars, x):
        more = {"rows": 8 * slots, "prefetch": 1, "input_output_aliases": {1: 0}}
        call = tiled(body, grid=(steps[0],), index=lambda i, _: (i % slots, 0), **more)
        return call(scalars, x)

    arrays = [
        Array(name="steps", shape=(1,), dtype="int32", values=lambda: np.array([7])),
        Array(name="flags", shape=(4,), dtype="bool", values=lambda: np.array([True] * 4)),
        Array(name="x", shape=(8 * slots, 128), dtype="float32"),
    ]
    (call,) = find(summed, arrays)
    assert call.scalar_operands()[1].tolist() == [1, 1, 1, 1]  # truth values are words
    (found,) = reader.traces([call])
    assert found.aliases == ((0, 1),) and found.grid == (7,)
    assert found.alias_safe == safe == (legality.violation(found, V5E) is None)


def test_a_key_of_random_numbers_is_found_again_as_the_words_that_are_compiled():
    """Attention with dropout."""

    def body(key, x, out):
        out[...] = x[...] + jax.random.uniform(key[...], TILE)

    def seeded(x):
        smem, vmem = pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pltpu.VMEM)
        call = pl.pallas_call(
            body, out_shape=jax.ShapeDtypeStruct(TILE, F32), in_specs=[smem, vmem]
        )
        return call(pltpu.to_pallas_key(jax.random.key(3)), x)

    (call,) = find(seeded, [Array(name="x", shape=TILE, dtype="float32")])
    assert call.shapes() == ([(1, 2), TILE], [TILE])


# --- what a scratch carries


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
    assert legality.parallel_prefix(of_kernel(kernel, shape)[0]) == prefix


# --- work


SIZES = (
    *(1, 3, 7, 8, 12, 16, 64, 100, 128, 129, 192),
    *(200, 256, 384, 512, 640, 1000, 1024, 1536, 3072),
)
MESH = AbstractMesh((1,), ("d",), abstract_device=AbstractDevice("TPU v5 lite", 1, "tpu"))


def jax_accepts(shape, block, dtype):
    """Whether Pallas lowers a copy with this block for a TPU: no compiler is asked."""
    grid = tuple(-(-s // b) for s, b in zip(shape, block, strict=True))
    spec = pl.BlockSpec(block, lambda *i: i)
    out = jax.ShapeDtypeStruct(shape, dtype)
    call = pl.pallas_call(
        lambda x, out: None, grid=grid, in_specs=[spec], out_specs=spec, out_shape=out
    )
    try:
        with use_abstract_mesh(MESH):
            jax.jit(call).trace(out).lower(lowering_platforms=("tpu",))
    except ValueError as error:
        assert "The Pallas TPU lowering currently requires" in str(error)
        return False
    return True


@given(
    st.lists(st.tuples(st.sampled_from(SIZES), st.sampled_from(SIZES)), min_size=1, max_size=3),
    st.sampled_from(("float32", "bfloat16", "int8", "bool")),
)
def test_alignment_is_what_jax_itself_checks(sizes, dtype):
    shape = tuple(size for size, _ in sizes)
    block = tuple(min(size, part) for size, part in sizes)
    call = pl.pallas_call(
        lambda x, out: None,
        grid=tuple(-(-s // b) for s, b in zip(shape, block, strict=True)),
        in_specs=[pl.BlockSpec(block, lambda *i: i)],
        out_specs=pl.BlockSpec(block, lambda *i: i),
        out_shape=jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)),
    )
    (found,) = read(call, [Array(name="x", shape=shape, dtype=dtype)])
    assert (legality.misaligned(found, V5E) is None) == jax_accepts(shape, block, jnp.dtype(dtype))
