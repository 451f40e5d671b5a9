"""A loop around a product whose turns are data, which reaches scalar memory on different ways."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune.declaring.kernel import Array, Axis, Kernel
from autotune.domain.problem import Option

STEPS, ROWS = 32, 8
TURNS = np.asarray([7, 3, 11, 5] * (STEPS // 4), np.int32)

_ROW = pl.BlockSpec((ROWS, 128), lambda i, *_: (i, 0))
_OUT = jax.ShapeDtypeStruct((STEPS * ROWS, 128), jnp.float32)
_IN_SMEM = pl.BlockSpec(memory_space=pltpu.SMEM)
_BLOCK_IN_SMEM = pl.BlockSpec((1, 1, 128), lambda i: (i, 0, 0), memory_space=pltpu.SMEM)
_BY_HAND = pl.BlockSpec(memory_space=pl.ANY)


def _work(turns, x, out):
    ones = jnp.ones((128, 128), jnp.float32)
    out[...] = jax.lax.fori_loop(0, turns, lambda _, a: jnp.dot(a, ones), x[...])


def _call(body, spec, scratch=()):
    return pl.pallas_call(
        body,
        grid=(STEPS,),
        in_specs=[_ROW, spec],
        out_specs=_ROW,
        out_shape=_OUT,
        scratch_shapes=scratch,
    )


def _prefetched(n, x, out):
    _work(n[pl.program_id(0), 0, 0], x, out)


def _whole(x, n, out):
    _work(n[pl.program_id(0), 0, 0], x, out)


def _blocked(x, n, out):
    _work(n[0, 0, 0], x, out)


def _copied(x, turns, out, n, done):
    copy = pltpu.make_async_copy(turns.at[pl.program_id(0)], n, done)
    copy.start()
    copy.wait()
    _work(n[0, 0], x, out)


def _build(problem, _config):
    if problem.option("way") == "prefetch":
        prefetched = pl.pallas_call(
            _prefetched,
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1, grid=(STEPS,), in_specs=[_ROW], out_specs=_ROW
            ),
            out_shape=_OUT,
        )
        return lambda x, n: prefetched(n, x)
    scratch = [pltpu.SMEM((1, 128), jnp.int32), pltpu.SemaphoreType.DMA]
    return {
        "whole": lambda: _call(_whole, _IN_SMEM),
        "blocked": lambda: _call(_blocked, _BLOCK_IN_SMEM),
        "copied": lambda: _call(_copied, _BY_HAND, scratch),
    }[str(problem.option("way"))]()


def _inputs(problem):
    columns = 1 if problem.option("way") in ("prefetch", "whole") else 128
    shape = (STEPS, 1, columns)
    known = problem.option("turns") == "given"
    return [
        Array(name="x", shape=(STEPS * ROWS, 128), dtype="float32"),
        Array(
            name="turns",
            shape=shape,
            dtype="int32",
            values=(lambda: np.broadcast_to(TURNS[:, None, None], shape).copy()) if known else None,
        ),
    ]


KERNEL = Kernel(
    name="counted_loops",
    dims=("n",),
    dtypes=("float32",),
    options=(
        Option(name="way", choices=("prefetch", "whole", "blocked", "copied"), default="prefetch"),
        Option(name="turns", choices=("given", "unknown"), default="given"),
    ),
    axes=(Axis(name="rows", choices=lambda _: (ROWS,)),),
    default=lambda _: {"rows": ROWS},
    inputs=_inputs,
    build=_build,
)
