"""What holds for every kernel of the catalogue, for any problem."""

import itertools

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain.problem import make_config
from autotune_kernels import (
    flash_attention,
    gathered_matmul,
    matmul,
    rmsnorm,
    tiled_dot,
    vector_add,
)

MODULES = (matmul, flash_attention, rmsnorm, vector_add, tiled_dot, gathered_matmul)
KERNELS = [module.KERNEL for module in MODULES]
SIZES = (1, 7, 100, 127, 128, 129, 1000, 4096, 8192, 65536)

every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)


def _problem(kernel, sizes, dtype=None):
    return kernel.problem_spec.parse("x".join(str(size) for size in sizes), dtype)


def _abstract(kernel, problem):
    return [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in kernel.inputs(problem)]


@every_kernel
@settings(max_examples=20)
@given(data=st.data())
def test_the_default_is_among_the_choices(kernel, data):
    sizes = data.draw(
        st.tuples(*[st.sampled_from(SIZES) | st.integers(1, 2**20)] * len(kernel.dims))
    )
    problem = _problem(kernel, sizes)
    default = kernel.default(problem)
    assert list(default) == [axis.name for axis in kernel.axes]
    for axis in kernel.axes:
        choices = list(axis.choices(problem))
        assert default[axis.name] in choices
        assert len(choices) == len(set(choices)) <= 12
        if axis.dim is not None:
            assert all(int(choice) <= problem[axis.dim] for choice in choices)


@every_kernel
@settings(max_examples=5)
@given(data=st.data())
def test_any_config_traces_in_any_grid_order(kernel, data):
    sizes = data.draw(st.tuples(*[st.sampled_from(SIZES)] * len(kernel.dims)))
    problem = _problem(kernel, sizes, data.draw(st.sampled_from(kernel.dtypes)))
    if kernel.check is not None and kernel.check(problem) is not None:
        return
    axes = {
        axis.name: data.draw(st.sampled_from(list(axis.choices(problem)))) for axis in kernel.axes
    }
    order = data.draw(st.permutations(kernel.grid))
    config = make_config(axes, grid_order=tuple(order))
    out = jax.eval_shape(kernel.build(problem, config), *_abstract(kernel, problem))
    want = jax.eval_shape(kernel.reference(problem), *_abstract(kernel, problem))
    assert (out.shape, out.dtype) == (want.shape, want.dtype)


@every_kernel
def test_every_option_of_every_dtype_traces(kernel):
    named = [[f"{option.name}={value}" for value in option.choices] for option in kernel.options]
    for dtype, options in itertools.product(kernel.dtypes, itertools.product(*named)):
        shape = "x".join(["256"] * len(kernel.dims))
        problem = kernel.problem_spec.parse(shape, dtype, options)
        if kernel.check is not None and kernel.check(problem) is not None:
            continue
        config = make_config(kernel.default(problem))
        assert kernel.build(problem, config) is not None
        for function in filter(None, (kernel.reference, kernel.baseline)):
            jax.eval_shape(function(problem), *_abstract(kernel, problem))
