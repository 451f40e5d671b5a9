"""Changes of what JAX has traced: where they are found, and that they do what they say."""

from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.config import pallas_tpu_interpret_mode_context_manager as switch
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.extend.core import jaxpr_as_fun

from autotune.compiling.child.changes.rewriting import changed, possible_changes
from autotune.compiling.child.changes.rules import BODY_RULES, missing_costs
from autotune.compiling.child.devices import abstract_mesh
from autotune.compiling.child.trace import pallas_call as reader
from autotune.compiling.child.trace.calls import walked
from autotune.declaring.kernel import Array
from autotune.domain.change import ChangeKind
from tests.samples import naive

BF16 = jnp.bfloat16


def arrays(*shapes, dtype="float32"):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes]


def listed(function, given):
    return list(possible_changes(jax.make_jaxpr(function)(*given)))


def interpreted(function, given):
    before = switch.swap_local(True)
    try:
        with abstract_mesh(SimpleNamespace(device_kind="TPU v6 lite")):
            traced = jax.make_jaxpr(function)(*given)
        (result,) = jax.jit(jaxpr_as_fun(traced))(*given)
        return np.asarray(result, np.float32)
    finally:
        switch.set_local(before)


CASES = {
    "flash": (naive.flash_attention, arrays(*[(1, 256, 128), *[(1, 512, 128)] * 2], dtype=BF16)),
    "attention": (naive.attention, arrays((1, 256, 128), *[(1, 512, 128)] * 2, dtype=BF16)),
    "matmul": (naive.matmul, arrays((512, 512), (512, 512), dtype=BF16)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_change_of_a_body_gives_the_same(name):
    function, given = CASES[name]
    before = interpreted(function, given)
    for change in listed(function, given):
        if change.kind in BODY_RULES:
            after = interpreted(changed(function, [change]), given)
            assert np.allclose(after, before, rtol=2e-2, atol=2e-2), change


def test_each_is_at_the_expression_that_it_is_of():
    function, given = CASES["flash"]
    lines = Path(naive.__file__).read_text(encoding="utf-8").splitlines()
    changes = [change for change in listed(function, given) if change.kind in BODY_RULES]
    texts = {
        lines[each.place.line - 1][each.place.column : each.place.end_column] for each in changes
    }
    assert texts == {"jax.lax.fori_loop(0, k_ref.shape[1] // block_k, step, start)"}
    assert {change.kind for change in changes} == {ChangeKind.UNROLLED}


def test_a_call_that_is_the_whole_function_is_at_its_body():
    call = pl.pallas_call(naive._softmax_body, out_shape=jax.ShapeDtypeStruct((8, 128), "float32"))
    (first, *_) = listed(call, arrays((8, 128)))
    assert first.place.line == naive._softmax_body.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("name", "kind", "primitive", "place", "shape"),
    [
        ("matmul", ChangeKind.WIDE_SUM, "dot_general", 0, "float32[512,512]"),
        ("attention", ChangeKind.LATE_SCALE, "div", -1, "float32[256,128]"),  # behind the product
        ("attention", ChangeKind.EARLY_SCALE, "div", 0, "float32[256,128]"),  # to what is smaller
    ],
)
def test_what_a_change_does_to_its_operation(name, kind, primitive, place, shape):
    function, given = CASES[name]
    (change,) = (c for c in listed(function, given) if c.kind is kind)
    traced = jax.make_jaxpr(changed(function, [change]))(*given)
    found = [eqn for eqn in walked(traced) if eqn.primitive.name == primitive]
    assert found[place].outvars[0].aval.str_short() == shape
    assert change.value == ("/" if primitive == "div" else "")


def test_a_call_without_a_cost_estimate_is_told_its_work_and_bytes():
    x, elements = Array(name="x", shape=(512, 256), dtype="float32"), 512 * 256
    call = reader.calls(jax.make_jaxpr(naive.softmax)(*reader.abstract([x])), [x])
    (cost,) = missing_costs(call)
    flops, special, moved = map(int, cost.value.split(","))
    assert (special, moved) == (elements, 2 * 4 * elements)
    assert flops == 4 * elements  # its sum and maximum, a difference and a division


@pytest.mark.parametrize(("value", "turns"), [("2", 2), ("4", 4), ("8", 4)])
def test_a_loop_is_unrolled_by_no_more_turns_than_it_has(value, turns):
    function, given = naive.flash_attention, arrays((1, 256, 128), *[(1, 1024, 128)] * 2)
    changes = {c.value: c for c in listed(function, given) if c.kind is ChangeKind.UNROLLED}
    traced = jax.make_jaxpr(changed(function, [changes[value]]))(*given)
    (loop,) = (eqn for eqn in walked(traced) if eqn.primitive.name == "scan")
    assert (loop.params["unroll"], loop.params["length"]) == (turns, 4)


def test_only_the_expression_of_a_change_is_rewritten():
    def body(x_ref, out_ref):
        once = jax.lax.fori_loop(0, 4, lambda _, x: x + 1.0, x_ref[...])
        out_ref[...] = jax.lax.fori_loop(0, 4, lambda _, x: x * 2.0, once)

    def function(x):
        return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    given = arrays((8, 128))
    changes = [
        c for c in listed(function, given) if (c.kind, c.value) == (ChangeKind.UNROLLED, "2")
    ]
    traced = jax.make_jaxpr(changed(function, changes[1:]))(*given)
    loops = [eqn for eqn in walked(traced) if eqn.primitive.name == "scan"]
    assert (len(changes), [loop.params["unroll"] for loop in loops]) == (2, [1, 2])


def counting(x):
    """Says in each block where it is, along which axis."""

    def body(x_ref, out_ref):
        here = 10 * pl.program_id(0) + pl.program_id(1) + 100 * pl.num_programs(1)
        out_ref[...] = x_ref[...] * 0 + here

    return pl.pallas_call(
        body,
        grid=(2, 3),
        in_specs=[pl.BlockSpec((8, 128), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((8, 128), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
    )(x)


def test_another_order_of_the_grid_is_told_to_all_that_count():
    given = arrays((16, 384))
    (change,) = (c for c in listed(counting, given) if c.kind is ChangeKind.GRID_ORDER)
    turned = changed(counting, [change])
    assert (interpreted(turned, given) == interpreted(counting, given)).all()
    (call,) = (
        eqn for eqn in walked(jax.make_jaxpr(turned)(*given)) if eqn.primitive.name == "pallas_call"
    )
    assert call.params["grid_mapping"].grid == (3, 2)
    kinds = call.params["compiler_params"].dimension_semantics
    assert [str(getattr(kind, "value", kind)).lower() for kind in kinds] == [
        "arbitrary",
        "parallel",
    ]


def gathered(steps, order, x):
    """Sums the blocks that ``order`` names, over a grid that data bounds; branches use the blocks,
    and ask where they are."""

    def body(order_ref, x_ref, out_ref, sums_ref):
        j = pl.program_id(1)

        @pl.when(j == 0)
        def _():
            sums_ref[...] = jnp.full_like(sums_ref, pl.program_id(0))

        for first in (0, 8):
            rows = pl.ds(first, 8)
            sums_ref[rows, :] += x_ref[rows, :]

        @pl.when(j == pl.num_programs(1) - 1)
        def _():
            out_ref[...] = sums_ref[...] + jax.jit(lambda: order_ref[pl.program_id(0)])()

    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(2, steps),
        in_specs=[pl.BlockSpec((None, 16, 128), lambda i, j, order: (order[2 * i + j], 0, 0))],
        out_specs=pl.BlockSpec((16, 128), lambda i, j, _: (i, 0)),
        scratch_shapes=[pltpu.VMEM((16, 128), jnp.float32)],
    )
    params = pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary"))
    shape = jax.ShapeDtypeStruct((32, 128), x.dtype)
    return pl.pallas_call(body, grid_spec=grid_spec, out_shape=shape, compiler_params=params)(
        order, x
    )


@pytest.mark.parametrize("value", ["3", "3x2"])
def test_three_buffers_give_the_same(value):
    given = [jnp.int32(2), jnp.asarray([3, 1, 4, 0], jnp.int32), *arrays((5, 16, 128))]
    changes = {c.value: c for c in listed(gathered, given) if c.kind is ChangeKind.BUFFERS}
    piped = changed(gathered, [changes[value]])
    _, order, x = map(np.asarray, given)
    sums = [x[order[2 * i]] + x[order[2 * i + 1]] + i + order[i] for i in (0, 1)]
    assert np.allclose(interpreted(piped, given), np.concatenate(sums), rtol=1e-5)


def test_functions_of_jax_itself_are_left_alone():
    """They are traced once: the line in them is that of their first use."""

    def body(x_ref, out_ref):
        out_ref[...] = jnp.where(x_ref[...] > 0, x_ref[...], 0.0)

    def function(x):
        return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    given = arrays((8, 128))
    kinds = {change.kind for change in listed(function, given)}
    assert kinds == {ChangeKind.NO_BOUNDS_CHECKS, ChangeKind.VMEM_LIMIT}
