"""What the broken kernels share: the axis that breaks them, fixed blocks, plain grids."""

from jax import lax
from jax import numpy as jnp
from jax.experimental import pallas as pl

from autotune.declaring.kernel import Axis
from autotune.declaring.pallas import compiler_params

LANES = 128
PARALLEL, ARBITRARY = "parallel", "arbitrary"

HOW = Axis(name="how", choices=lambda _: ("right", "wrong"))
"""The broken config and its twin are one kernel, so nothing else can explain a verdict."""


def is_right(config):
    return bool(config["how"] == "right")


def blocks(name, dim, *sizes):
    """Few sizes, so that the problems stay small; ``dim`` lets the gate reduce the problem."""
    return Axis(name=name, choices=lambda _: sizes, dim=dim)


def semantics(config, *kinds):
    """The kernel's own semantics: what a rival is given must be what the gate is given."""
    return compiler_params(config.replace(dimension_semantics=kinds))


def rows(block, index, width=LANES):
    """Blocks of whole rows."""
    return pl.BlockSpec((block, width), index)


def by_hand():
    """An array that stays in HBM: the kernel copies it itself."""
    return pl.BlockSpec(memory_space=pl.ANY)


def position(shape, axis):
    return lax.broadcasted_iota(jnp.int32, shape, axis)
