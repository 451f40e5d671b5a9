"""One matrix multiplication, and what people get wrong in it: each kernel changes one thing."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from broken_parts import ARBITRARY, HOW, LANES, PARALLEL, blocks, is_right, position, semantics
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune.declaring.kernel import Array, Kernel

_BLOCK_M, _BLOCK_K = 16, 128


def _width_of_last(extent, block):
    return extent % block or block


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The right way; a broken kernel replaces one field.

    ``starts``: whether the accumulator is cleared at (m, k). ``rhs_block``: which block meets step
    k. ``tail``: how many of the last block's k count. ``operand`` and ``total``: element types.
    """

    kinds: tuple[str, str] = (PARALLEL, ARBITRARY)
    starts: Callable[[Any, Any], Any] = lambda m, k: k == 0
    rhs_block: Callable[[Any], Any] = lambda k: k
    tail: Callable[[int, int], int] = _width_of_last
    operand: Any = None
    total: Any = jnp.float32
    out: Any = None


def _body(lhs, rhs, out, acc, *, recipe, tail):
    m, k, last = pl.program_id(0), pl.program_id(1), pl.num_programs(1) - 1

    def start():
        acc[...] = jnp.zeros_like(acc)

    def store():
        out[...] = acc[...].astype(out.dtype)

    pl.when(recipe.starts(m, k))(start)
    width = jnp.where(k == last, tail, lhs.shape[1])
    left = jnp.where(position(lhs.shape, 1) < width, lhs[...], 0).astype(recipe.operand)
    right = jnp.where(position(rhs.shape, 0) < width, rhs[...], 0).astype(recipe.operand)
    acc[...] += jnp.dot(left, right, preferred_element_type=jnp.float32).astype(acc.dtype)
    pl.when(k == last)(store)


def _multiply(problem, config, recipe):
    m, k, block_k = problem["m"], problem["k"], config["block_k"]
    recipe = replace(recipe, operand=recipe.operand or problem.dtype)
    return pl.pallas_call(
        partial(_body, recipe=recipe, tail=recipe.tail(k, block_k)),
        grid=(pl.cdiv(m, _BLOCK_M), pl.cdiv(k, block_k)),
        in_specs=[
            pl.BlockSpec((_BLOCK_M, block_k), lambda m, k: (m, k)),
            pl.BlockSpec((block_k, LANES), lambda m, k: (recipe.rhs_block(k), 0)),
        ],
        out_specs=pl.BlockSpec((_BLOCK_M, LANES), lambda m, k: (m, 0)),
        out_shape=jax.ShapeDtypeStruct((m, LANES), recipe.out or problem.dtype),
        scratch_shapes=[pltpu.VMEM((_BLOCK_M, LANES), recipe.total)],
        compiler_params=semantics(config, *recipe.kinds),
    )


def _reference(problem):
    def product(lhs, rhs):
        wide = lhs.astype(jnp.float32), rhs.astype(jnp.float32)
        return jnp.dot(*wide, precision=lax.Precision.HIGHEST).astype(problem.dtype)

    return product


def _baseline(problem):
    """Of the dtypes as they are, so that the gate knows how exact a right kernel can be."""

    def product(lhs, rhs):
        return jnp.dot(lhs, rhs, preferred_element_type=jnp.float32).astype(problem.dtype)

    return product


def _kernel(
    name,
    wrong,
    *,
    dtype="float32",
    axes=(HOW,),
    sizes=(_BLOCK_K,),
):
    """A kernel that follows ``wrong`` where its config does not say to do it right."""

    def build(problem, config):
        return _multiply(problem, config, Recipe() if axes and is_right(config) else wrong)

    return Kernel(
        name=name,
        dims=("m", "k"),
        dtypes=(dtype,),
        axes=(blocks("block_m", "m", _BLOCK_M), blocks("block_k", "k", *sizes), *axes),
        default=lambda _: {
            "block_m": _BLOCK_M,
            "block_k": sizes[-1],
            **{axis.name: "right" for axis in axes},
        },
        inputs=lambda p: [
            Array(name="lhs", shape=(p["m"], p["k"]), dtype=p.dtype),
            Array(name="rhs", shape=(p["k"], LANES), dtype=p.dtype),
        ],
        build=build,
        reference=_reference,
        baseline=_baseline,
    )


PARALLEL_REDUCTION = _kernel("parallel_reduction", Recipe(kinds=(PARALLEL, PARALLEL)))
NO_START = _kernel("no_start", Recipe(starts=lambda m, k: k < 0))
START_ONCE = _kernel("start_once", Recipe(starts=lambda m, k: jnp.logical_and(m == 0, k == 0)))
OFF_BY_ONE_MAP = _kernel("off_by_one_map", Recipe(rhs_block=lambda k: jnp.maximum(k - 1, 0)))
BEYOND_THE_LAST = _kernel("beyond_the_last", Recipe(rhs_block=lambda k: k + 1))
PAST_THE_EDGE = _kernel("past_the_edge", Recipe(tail=lambda extent, block: block))
ROUNDED_OPERANDS = _kernel("rounded_operands", Recipe(operand=jnp.bfloat16))
ROUNDED_TOTAL = _kernel("rounded_total", Recipe(total=jnp.bfloat16), dtype="bfloat16")
OUTPUT_DTYPE = _kernel("output_dtype", Recipe(out=jnp.float32), dtype="bfloat16")

SLOT_FOR_BLOCK = _kernel("slot_for_block", Recipe(rhs_block=lambda k: lax.rem(k, 2)))
"""The slot of a double buffer taken for the block: two blocks do not show it, three do."""

WRONG_TAIL = _kernel(
    "wrong_tail", Recipe(tail=lambda extent, block: extent % block), axes=(), sizes=(128, 256)
)
"""Right where the last block is ragged; where it is whole, nothing of it counts."""
