"""Kernels run on the CPU, in the interpreter that simulates a TPU's memories."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from autotune.domain.problem import Problem, make_config

# Of the largest value. A bfloat16 has 8 significant bits, so rounding the result costs 2^-9 and
# rounding attention's weights before they meet the values as much again; in float32 only the order
# of additions differs (the terms of a dot product may be larger than their sum); int8 is exact.
TOLERANCE = {"bfloat16": 1e-2, "float32": 2e-5, "int8": 0.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    problem: Problem
    inputs: list[Any]
    got: Any

    def assert_close_to(self, function):
        want = function(*self.inputs)
        assert (self.got.dtype, self.got.shape) == (want.dtype, want.shape)
        exact, result = np.asarray(want, np.float64), np.asarray(self.got, np.float64)
        tolerance = TOLERANCE[self.problem.dtype] * np.max(np.abs(exact))
        np.testing.assert_allclose(result, exact, rtol=0, atol=tolerance)


def interpret(kernel, shape, dtype, *options, order=(), semantics=(), **axes):
    """One run of the default config with some axes changed. Memory starts as NaN."""
    problem = kernel.problem_spec.parse(shape, dtype, options)
    assert kernel.check is None or kernel.check(problem) is None
    config = make_config(
        {**kernel.default(problem), **axes}, grid_order=order, dimension_semantics=semantics
    )
    inputs = [_random(array, seed) for seed, array in enumerate(kernel.inputs(problem))]
    with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams(uninitialized_memory="nan")):
        got = jax.block_until_ready(kernel.build(problem, config)(*inputs))
    return Run(problem=problem, inputs=inputs, got=got)


def _random(array, seed):
    rng = np.random.default_rng(seed)
    if array.values is not None:
        return jnp.asarray(array.values())
    if array.dtype == "int8":
        return jnp.asarray(rng.integers(-128, 128, array.shape), jnp.int8)
    return jnp.asarray(rng.standard_normal(array.shape), array.dtype)


@pytest.fixture(scope="session")
def assert_right():
    """Runs a config and compares it with the reference and the baseline."""

    def check(kernel, shape, dtype, *options, **how):
        run = interpret(kernel, shape, dtype, *options, **how)
        run.assert_close_to(kernel.reference(run.problem))
        if kernel.baseline is not None:
            run.assert_close_to(kernel.baseline(run.problem))

    return check
