"""What a kernel does in its body: scratch that is carried, arithmetic, values that are kept."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune.declaring.kernel import Array
from autotune_kernels.flash_attention import KERNEL as FLASH
from autotune_kernels.matmul import KERNEL as MATMUL
from autotune_kernels.rmsnorm import KERNEL as RMSNORM
from tests.compiling.child.trace.test_reader import of_body, of_kernel, read

F32 = jnp.float32


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


def test_a_call_of_no_steps_does_nothing():
    """Ragged paged attention makes a call for the sequences that decode, of which there may be
    none."""
    body = running(lambda: pl.program_id(1) == 0)
    found = of_body(body, grid=(0, 3), index=lambda i, j: (i, 0))
    assert (found.vector_ops, found.mxu_flops, found.scratch[0].carried) == (0, 0, False)


def test_what_a_scoped_region_closes_over_is_known_inside():
    """From jax 0.11 on these are tracers among its constants, up to then variables."""

    def body(x, out, total):
        first, factor = pl.program_id(1) == 0, x[0, 0]

        def inside(buffer):
            buffer[...] = x[...] * factor
            pl.when(first)(lambda: total.__setitem__(..., jnp.zeros_like(total)))
            total[...] += buffer[...]
            out[...] = total[...]

        pl.run_scoped(inside, pltpu.VMEM((8, 128), F32))

    found = of_body(body, grid=(2, 3), index=lambda i, j: (i, 0))
    assert found.scratch[0].carried
    assert found.scratch[0].reset_axes == (1,)


def written(x, total):
    total[...] = x[...]


def written_in_both_branches(x, total):
    first = pl.program_id(0) == 0
    jax.lax.cond(first, lambda: written(x, total), lambda: total.__setitem__(..., -x[...]))


@pytest.mark.parametrize("write", [written, written_in_both_branches])
def test_a_scratch_written_before_it_is_read_is_not_carried(write):
    def body(x, out, total):
        write(x, total)
        out[...] = total[...] * 2

    (scratch,) = of_body(body).scratch
    assert (scratch.carried, scratch.reset_axes) == (False, ())


@pytest.mark.parametrize(("m", "k", "n", "block_k"), [(512, 1024, 256, 256), (128, 300, 128, 128)])
def test_flops_of_a_matmul_are_those_of_its_blocks(m, k, n, block_k):
    """A ragged tail is weighted by how often it runs."""
    (found,) = of_kernel(MATMUL, f"{m}x{k}x{n}", block_m=128, block_k=block_k, block_n=128)
    assert (found.mxu_flops, found.mxu_dtype) == (2 * m * k * n, "bfloat16")


def test_blocks_above_the_diagonal_do_no_work():
    (full,) = of_kernel(FLASH, "1x1x1x512x512x128", block_q=128, block_kv=128)
    (causal,) = of_kernel(
        FLASH, "1x1x1x512x512x128", None, "causal=true", block_q=128, block_kv=128
    )
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


PRODUCT = 2 * 8 * 8 * 128


def times(x, turns):
    return jax.lax.fori_loop(*turns, lambda _, v: v + jnp.dot(x[:, :8], v), x[...])


@pytest.mark.parametrize(
    ("turns", "counted"),
    [
        (lambda: (0, pl.program_id(0)), 0 + 1 + 2 + 3),
        (lambda: (pl.program_id(0), 3), 3 + 2 + 1 + 0),
        (lambda: (pl.program_id(0), pl.num_programs(0) * 2), 8 + 7 + 6 + 5),
    ],
)
def test_turns_that_depend_on_the_step_are_counted(turns, counted):
    def body(x, out, total):
        out[...] = times(x, turns())

    found = of_body(body, grid=(4,))
    assert found.mxu_flops == found.least_mxu_flops == counted * PRODUCT
    assert not found.notes


@pytest.mark.parametrize("step", [2, -1])
def test_a_loop_that_counts_otherwise_has_an_unknown_length(step):
    def body(x, out, total):
        def turn(carry):
            return carry[0] + step, carry[1] + jnp.dot(x[:, :8], carry[1])

        begin = (pl.program_id(0), x[...])
        out[...] = jax.lax.while_loop(lambda carry: carry[0] < 3, turn, begin)[1]

    found = of_body(body, grid=(4,))
    assert (found.mxu_flops, found.least_mxu_flops) == (4 * PRODUCT, 0)
    assert "unknown length" in found.notes[0]


def test_what_only_some_steps_may_do_is_not_certain():
    def body(x, out, total):
        @pl.when(x[0, 0] > 0)
        def _():
            out[...] = jnp.dot(x[:, :8], x[...])

        @pl.when(pl.program_id(0) == 0)
        def _():
            out[...] = times(x, (0, pl.program_id(0)))

    found = of_body(body, grid=(4,))
    assert found.mxu_flops > 0 and found.least_mxu_flops == 0


@pytest.mark.parametrize(("others", "certain"), [(1, 1), (3, 1), (0, 0)])
def test_what_every_branch_does_is_certain(others, certain):
    """tokamax's ragged dot multiplies in each of two branches, chosen by data."""

    def body(x, out, total):
        def some(turns):
            return lambda: times(x, (0, turns))

        out[...] = jax.lax.cond(x[0, 0] > 0, some(1), some(others))

    found = of_body(body, grid=(4,))
    assert found.least_mxu_flops == 4 * certain * PRODUCT


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
