"""Where a declaration says that an argument lies, through the real compiler."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune.declaring.kernel import Array, Axis, Kernel
from autotune.domain.compilers import CompileBaseline, Compiled, XlaCost
from autotune.domain.key import Chip
from autotune.domain.problem import make_config
from tests.samples.questions import case_of

CACHE = (512, 128)


def _body(new, cache, out, done):
    for source, target in (
        (new, out.at[pl.ds(0, 8)]),
        (cache.at[pl.ds(8, 8)], out.at[pl.ds(8, 8)]),
    ):
        copy = pltpu.make_async_copy(source, target, done)
        copy.start()
        copy.wait()


def _update(aliases):
    return pl.pallas_call(
        _body,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)] * 2,
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        out_shape=jax.ShapeDtypeStruct(CACHE, jnp.float32),
        scratch_shapes=[pltpu.SemaphoreType.DMA],
        input_output_aliases=aliases,
    )


def _kernel(aliases, **placed):
    arrays = [
        Array(name="new", shape=(8, 128), dtype="float32", memory=placed.get("memory", "any")),
        Array(name="cache", shape=CACHE, dtype="float32", **placed),
    ]
    return Kernel(
        name="update",
        dims=("n",),
        dtypes=("float32",),
        axes=(Axis(name="unused", choices=lambda _: (1,)),),
        default=lambda _: {"unused": 1},
        inputs=lambda _: arrays,
        build=lambda _, __: _update(aliases),
        baseline=lambda _: lambda new, cache: cache[jnp.arange(8) * 2],
    )


PLAIN, IN_HBM = _kernel({}), _kernel({}, memory="hbm")
COPIED, DONATED = _kernel({1: 0}), _kernel({1: 0}, donated=True, memory="hbm")


def compiled(pool, name):
    answer = case_of(pool, f"{__file__}:{name}", "n=1").compile(
        make_config({"unused": 1}), Chip.V7X
    )
    assert isinstance(answer, tuple), answer
    assert isinstance(answer[1], Compiled)
    return answer[1]


def test_an_argument_in_hbm_is_not_copied_to_vmem_first(pool):
    assert compiled(pool, "PLAIN").simulation["vmem_operands"]
    found = compiled(pool, "IN_HBM")
    assert not found.simulation["vmem_operands"]
    assert not any(one.opcode.startswith("copy") for one in found.schedule)


def test_plain_xla_gathers_from_an_argument_in_hbm(pool):
    """JAX has no gather from an array that is said to be there: paged attention had no baseline."""
    cost = case_of(pool, f"{__file__}:IN_HBM", "n=1").ask(CompileBaseline, chip=Chip.V7X)
    assert isinstance(cost, XlaCost), cost


def test_a_donated_argument_is_written_in_place(pool):
    def copies(name):
        schedule = compiled(pool, name).schedule
        return sum(one.hbm_bytes for one in schedule if one.kernel is None)

    assert copies("COPIED") >= 2 * 512 * 128 * 4
    assert copies("DONATED") == 0


def test_another_memory_is_refused_at_once():
    with pytest.raises(ValueError, match="memory of argument x is 'smem'"):
        replace(Array(name="x", shape=(1,), dtype="int32"), memory="smem")
