"""A kernel over a mesh: every device scales its own rows, or hands them to its neighbour. Without
a mesh in the declaration JAX refuses it."""

from dataclasses import replace

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec

from autotune.declaring.kernel import Array, Kernel, block
from autotune.domain.problem import Option

WIDTH = 512


def _scaled(rows, size):
    def body(x, out):
        out[...] = x[...] * 2

    spec = pl.BlockSpec((size, WIDTH), lambda i: (i, 0))
    return pl.pallas_call(
        body,
        grid=(rows // size,),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((rows, WIDTH), "float32"),
    )


def _handed_on(rows, devices):
    def body(x, out, sent, received):
        right = jax.lax.rem(jax.lax.axis_index("x") + 1, devices)
        copy = pltpu.make_async_remote_copy(x, out, sent, received, device_id=(right,))
        copy.start()
        copy.wait()

    spec = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        body,
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((rows, WIDTH), "float32"),
        scratch_shapes=[pltpu.SemaphoreType.DMA] * 2,
    )


def _build(problem, config, mesh=None):
    devices = problem["devices"]
    rows = problem["rows"] // devices
    sends = problem.option("sends") == "true"
    call = _handed_on(rows, devices) if sends else _scaled(rows, config["block"])
    divided = PartitionSpec("x")

    def function(x):
        over = {"in_specs": divided, "out_specs": divided, "check_vma": False}
        return jax.shard_map(call, mesh=mesh or jax.sharding.get_abstract_mesh(), **over)(x)

    return function


def _build_over(problem, config):
    """Asks for the mesh while it builds."""
    return _build(problem, config, jax.sharding.get_abstract_mesh())


def _reference(problem):
    if problem.option("sends") == "true":
        return lambda x: jax.numpy.roll(x, x.shape[0] // problem["devices"], 0)
    return lambda x: x * 2


KERNEL = Kernel(
    name="meshed",
    dims=("rows", "devices"),
    dtypes=("float32",),
    options=(Option(name="sends", choices=("false", "true"), default="false"),),
    axes=(block("block", "rows", minimum=8),),
    default=lambda _: {"block": 64},
    inputs=lambda p: [Array(name="x", shape=(p["rows"], WIDTH), dtype="float32", spec=("x", None))],
    build=_build,
    reference=_reference,
    mesh=lambda problem: {"x": problem["devices"]},
)

BUILT_OVER = replace(KERNEL, name="built_over", build=_build_over)
WITHOUT = replace(KERNEL, mesh=None)
