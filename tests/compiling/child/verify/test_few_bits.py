"""Kernels that scale blocks and round them to a few bits, and references that round on their way:
right ones pass, and what is wrong with them is still seen."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune.compiling.child.verify import gate
from autotune.declaring.kernel import Array, Axis, Kernel
from autotune.domain.problem import make_config

ROWS, LANES = 32, 128
F32, BF16 = jnp.float32, jnp.bfloat16


def in_few_bits(x, few):
    """Each row scaled by its largest number, rounded, and scaled back."""
    is_floating = jnp.issubdtype(few, jnp.floating)
    most = float((jnp.finfo if is_floating else jnp.iinfo)(few).max)
    scale = jnp.max(jnp.abs(x), axis=1, keepdims=True) / most
    return (x / scale if is_floating else jnp.round(x / scale)).astype(few).astype(F32) * scale


def product(few, before, after):
    """Quantises what it is given in blocks of ``block`` columns; the reference whole rows."""

    def build(problem, config):
        block, steps = config["block"], problem["k"] // config["block"]

        def body(x, w, out, total):
            @pl.when(pl.program_id(1) == 0)
            def _():
                total[...] = jnp.zeros_like(total)

            given = x[...].astype(F32)
            last = pl.program_id(1) == steps - 1
            given = jnp.where(last, before(given), given)
            total[...] += jnp.dot(in_few_bits(given, few), w[...].astype(F32))
            out[...] = after(total[...]).astype(out.dtype)

        return pl.pallas_call(
            body,
            grid=(problem["m"] // ROWS, steps),
            in_specs=[
                pl.BlockSpec((ROWS, block), lambda i, k: (i, k)),
                pl.BlockSpec((block, LANES), lambda _, k: (k, 0)),
            ],
            out_specs=pl.BlockSpec((ROWS, LANES), lambda i, _: (i, 0)),
            out_shape=jax.ShapeDtypeStruct((problem["m"], LANES), BF16),
            scratch_shapes=[pltpu.VMEM((ROWS, LANES), F32)],
        )

    return Kernel(
        name="k",
        dims=("m", "k"),
        dtypes=("bfloat16",),
        axes=(Axis(name="block", choices=lambda _: [128, 512], dim="k"),),
        default=lambda _: {"block": 128},
        inputs=lambda p: [
            Array(name="x", shape=(p["m"], p["k"]), dtype=p.dtype),
            Array(name="w", shape=(p["k"], LANES), dtype=p.dtype),
        ],
        build=build,
        reference=lambda _: (
            lambda x, w: (in_few_bits(x.astype(F32), few) @ w.astype(F32)).astype(BF16)
        ),
    )


def unchanged(x):
    return x


def without_last_column(x):
    return x * (jax.lax.broadcasted_iota(jnp.int32, x.shape, 1) < x.shape[1] - 8)


def checked(few, before=unchanged, after=unchanged):
    made = product(few, before, after)
    return gate.check(made, made.problem_spec.parse("64x2048"), make_config({"block": 512}))


TYPES = [jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.int8, jnp.int4]


@pytest.mark.slow
@pytest.mark.parametrize("few", TYPES, ids=str)
def test_another_block_is_another_rounding_and_no_fault(few):
    verdict = checked(few)
    assert verdict.ok and "few bits" in verdict.reason, verdict


@pytest.mark.slow
@pytest.mark.parametrize("few", [jnp.float8_e4m3fn, jnp.int8], ids=str)
@pytest.mark.parametrize("fault", ["columns", "scale"])
def test_a_fault_is_larger_than_what_is_rounded(few, fault):
    """Eight of 512 columns that are lost are less than the rounding of random numbers."""
    faults = {
        "columns": {"before": without_last_column},
        "scale": {"after": lambda total: total * 1.1},
    }
    verdict = checked(few, **faults[fault])
    assert verdict.ok is False, verdict


def rounded_logits(x):
    logits = (8.0 * x.astype(F32)).astype(BF16)
    return jax.nn.softmax(logits.astype(F32), axis=1).astype(BF16)


def softmax(right):
    """With logits that are not rounded, unlike those of its reference."""

    def build(problem, _):
        def body(x, out):
            given = jax.nn.softmax(8.0 * x[...].astype(F32), axis=1)
            out[...] = (given if right else given * 1.03).astype(BF16)

        spec = pl.BlockSpec((ROWS, LANES), lambda i: (i, 0))
        shape = jax.ShapeDtypeStruct((problem["m"], LANES), BF16)
        grid = (problem["m"] // ROWS,)
        return pl.pallas_call(body, grid=grid, in_specs=[spec], out_specs=spec, out_shape=shape)

    return Kernel(
        name="k",
        dims=("m",),
        dtypes=("bfloat16",),
        axes=(Axis(name="block", choices=lambda _: [ROWS], dim="m"),),
        default=lambda _: {"block": ROWS},
        inputs=lambda p: [Array(name="x", shape=(p["m"], LANES), dtype=p.dtype)],
        build=build,
        reference=lambda _: rounded_logits,
    )


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_what_the_reference_rounds_is_no_fault_of_the_kernel(right):
    made = softmax(right)
    verdict = gate.check(made, made.problem_spec.parse("128"), make_config({"block": ROWS}))
    assert verdict.ok is right, verdict
