"""Our own kernels in interpret mode, with lengths that no block divides, against their references
and baselines."""

from collections.abc import Callable
from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental.pallas import tpu as pltpu

from autotune.domain.problem import make_config
from autotune_kernels.flash_attention import KERNEL as FLASH
from autotune_kernels.gathered_matmul import KERNEL as GATHERED
from autotune_kernels.matmul import KERNEL as MATMUL
from autotune_kernels.rmsnorm import KERNEL as RMSNORM
from autotune_kernels.tiled_dot import KERNEL as TILED_DOT
from autotune_kernels.vector_add import KERNEL as VECTOR_ADD
from tests.kernels.conftest import interpret

Check = Callable[..., None]
FLOATS = ("bfloat16", "float32")
ALL = (*FLOATS, "int8")
IN_MATMUL = ("parallel", "parallel", "arbitrary")
IN_FLASH = ("parallel", "parallel", "parallel", "arbitrary")
CAUSAL = ("causal=false", "causal=true")
TRANSPOSED = ("transpose_rhs=false", "transpose_rhs=true")


def runs(kernel, shapes, dtypes=("float32",), options=("",), *, slow=True, **how):
    """One for each shape, dtype and option; ``how`` as ``interpret`` takes it."""
    marks = [pytest.mark.slow] if slow else []
    name = "-".join([kernel.name, *(f"{key}={value}" for key, value in how.items())])
    return [
        pytest.param(kernel, shape, dtype, option, how, marks=marks, id=f"{name}-{shape}-{dtype}")
        for shape, dtype, option in product(shapes.split(), dtypes, options)
    ]


RIGHT = [
    # matmul: ragged on every axis, blocks that divide, what comes after the whole sum, orders
    *runs(MATMUL, "200x300x130", ALL, TRANSPOSED),
    *runs(MATMUL, "1x1x1", ALL),
    *runs(MATMUL, "1x7x100 7x129x1", ALL, TRANSPOSED[1:]),
    *runs(MATMUL, "128x512x256", FLOATS[:1], block_k=256, slow=False),
    *runs(MATMUL, "128x512x256", ALL[1:], block_k=256),
    *runs(MATMUL, "16x300x130", FLOATS, ("activation=relu", "activation=gelu")),
    *runs(MATMUL, "32x300x130", ("int8",), ("activation=relu",), slow=False),
    *runs(MATMUL, "200x300x300", order=("m", "n", "k"), semantics=IN_MATMUL, block_n=256),
    *runs(MATMUL, "200x300x300", order=("n", "m", "k"), semantics=IN_MATMUL, block_n=256),
    # gathered matmul: blocks smaller than a group, and groups larger than the default block
    *runs(GATHERED, "300x200x130x5", FLOATS, block_m=16),
    *runs(GATHERED, "300x200x130x5", FLOATS, block_m=128),
    *runs(GATHERED, "300x300x200x3", order=("n", "m", "k"), semantics=IN_MATMUL),
    *runs(GATHERED, "300x300x200x3", order=("m", "n", "k"), semantics=IN_MATMUL),
    *runs(GATHERED, "1x1x1x1 100x129x100x3 129x8x8x9", FLOATS),
    *runs(GATHERED, "700x100x100x4", options=("group=256", "group=512"), block_m=128),
    # flash attention: grouped heads, blocks that are not square, a last block of one key
    *runs(FLASH, "1x2x2x200x300x64", FLOATS, CAUSAL),
    *runs(FLASH, "2x6x2x64x64x32", options=CAUSAL),
    *runs(FLASH, "1x1x1x384x512x64", options=CAUSAL[1:], block_q=128, block_kv=384),
    *runs(FLASH, "1x1x1x384x512x64", options=CAUSAL[1:], block_q=256, block_kv=128),
    *runs(FLASH, "1x1x1x384x512x64", options=CAUSAL[1:], block_q=384, block_kv=256),
    *runs(FLASH, "1x1x1x64x300x1 1x1x1x64x300x100 1x1x1x64x300x192"),
    *runs(
        FLASH,
        "1x2x1x200x200x32",
        options=CAUSAL[1:],
        order=("batch", "head", "q", "kv"),
        semantics=IN_FLASH,
    ),
    *runs(
        FLASH,
        "1x2x1x200x200x32",
        options=CAUSAL[1:],
        order=("q", "head", "batch", "kv"),
        semantics=IN_FLASH,
    ),
    *runs(FLASH, "1x2x1x1x1x64 1x2x1x1x300x64 1x2x1x129x257x64", ("bfloat16",), CAUSAL[1:]),
    # rmsnorm, in chunks of its features
    *runs(RMSNORM, "20x700", FLOATS, block_rows=8, block_features=128),
    *runs(RMSNORM, "20x700", FLOATS, block_rows=8, block_features=256),
    *runs(RMSNORM, "20x700", FLOATS, block_rows=8, block_features=700),
    *runs(RMSNORM, "1x1 8x1024", FLOATS),
    *runs(RMSNORM, "100x100", FLOATS[:1], slow=False),
    *runs(VECTOR_ADD, "1 1000", FLOATS),
    *runs(VECTOR_ADD, "3000", FLOATS, slow=False),
    *runs(VECTOR_ADD, "9000", block_n=4096, semantics=("parallel",), slow=False),
    *runs(TILED_DOT, "1 1000 3000", FLOATS),
    *runs(TILED_DOT, "5200", block_rows=8),
    *runs(TILED_DOT, "5200", block_rows=16),
    *runs(TILED_DOT, "5200", block_rows=41),
]


@pytest.mark.parametrize(("kernel", "shape", "dtype", "option", "how"), RIGHT)
def test_a_config_is_right(assert_right, kernel, shape, dtype, option, how):
    assert_right(kernel, shape, dtype, *filter(None, [option]), **how)


@st.composite
def flash_shapes(draw):
    queries = draw(st.integers(1, 300))
    return f"1x1x1x{queries}x{queries + draw(st.integers(0, 200))}x16"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "option", "shapes"),
    [
        (MATMUL, "transpose_rhs=false", st.builds("{}x{}x{}".format, *[st.integers(1, 400)] * 3)),
        (FLASH, "causal=true", flash_shapes()),
        (RMSNORM, "", st.builds("{}x{}".format, st.integers(1, 40), st.integers(1, 900))),
    ],
    ids=["matmul", "flash_attention", "rmsnorm"],
)
@settings(max_examples=5)
@given(data=st.data())
def test_any_offered_config(assert_right, kernel, option, shapes, data):
    shape = data.draw(shapes)
    problem = kernel.problem_spec.parse(shape)
    axes = {
        axis.name: data.draw(st.sampled_from(list(axis.choices(problem)))) for axis in kernel.axes
    }
    assert_right(kernel, shape, "float32", *filter(None, [option]), **axes)


@pytest.mark.parametrize(
    ("kernel", "shape", "dtype", "option", "word"),
    [
        (FLASH, "1x3x2x8x8x8", "bfloat16", "causal=true", "multiple"),
        (FLASH, "1x2x2x9x8x8", "bfloat16", "causal=true", "at least q_len=9"),
        (MATMUL, "8x8x8", "int8", "activation=gelu", "gelu"),
    ],
)
def test_impossible_problems_say_why(kernel, shape, dtype, option, word):
    problem = kernel.problem_spec.parse(shape, dtype, [option])
    assert kernel.check is not None and word in str(kernel.check(problem))


def test_experts_in_any_order():
    problem = GATHERED.problem_spec.parse("512x64x64x3", "float32")
    rng = np.random.default_rng(0)
    rows = jnp.asarray(rng.standard_normal((512, 64)), jnp.float32)
    weights = jnp.asarray(rng.standard_normal((3, 64, 64)), jnp.float32)
    expert = jnp.asarray([2, 0, 1, 0], jnp.int32)
    config = make_config({**GATHERED.default(problem), "block_m": 64})
    with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams()):
        got = GATHERED.build(problem, config)(expert, rows, weights)
    each = [rows[128 * i : 128 * (i + 1)] @ weights[e] for i, e in enumerate([2, 0, 1, 0])]
    np.testing.assert_allclose(got, jnp.concatenate(each), rtol=1e-5, atol=1e-4)


def test_tiled_dot_starts_from_the_initial_sum_and_leaves_it_alone():
    run = interpret(TILED_DOT, "5000", "float32", block_rows=8)
    x, y, initial = run.inputs
    assert abs(float(initial[0, 0])) > 0.01
    reference = TILED_DOT.reference(run.problem)
    assert float(reference(x, y, 0 * initial)[0, 0]) != pytest.approx(float(run.got[0, 0]))
