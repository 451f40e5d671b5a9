"""No estimate is below what bytes and operations take at the chip's peak rates: the guard refuses
one that is, and finds none among configs of the catalogue drawn at random, nor among kernels of
other packages at shapes drawn at random (``AUTOTUNE_FIELD_PYTHON`` names an interpreter that has
tokamax and tpu-inference; CONTRIBUTING.md says how)."""

import json
import os
import random
from pathlib import Path

import pytest

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import (
    CheckDeclaration,
    CompileConfig,
    DescribeChip,
    DescribeKernel,
    ListChoices,
)
from autotune.domain.errors import AutotuneError
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated
from autotune.domain.problem import make_config
from autotune.estimating.cost_model.estimate import estimate
from tests.e2e.test_from_jax import KERNELS

OWN = {
    "matmul": ("m=2048,k=1024,n=1024", ""),
    "flash_attention": ("1x2x2x1024x1024x128", "causal=true"),
    "rmsnorm": ("4096x2048", ""),
    "vector_add": ("4194304", ""),
    "tiled_dot": ("1048576", ""),
    "gathered_matmul": ("tokens=512,k=512,n=512,experts=4", ""),
}
CASES = {
    name: (shape, [option] if option else [])
    for name, (shape, option) in {**OWN, **KERNELS}.items()
}
FIELD = json.loads((Path(__file__).parents[2] / "benchmarks" / "field.json").read_text())
CONFIGS = 1  # beside the default


@pytest.mark.parametrize("chip", [Chip.V5E, Chip.V5P, Chip.V6E, Chip.V7X])
@pytest.mark.parametrize("name", CASES)
def test_the_catalogue_is_never_below_it(pool, name, chip):
    ref, (shape, options) = find_kernel(name), CASES[name]
    problem = pool.ask(DescribeKernel(ref=ref)).problems.parse(shape, None, options)
    assert_above(pool, ref, problem, chip, random.Random(f"{name} on {chip}"))


@pytest.fixture(scope="module")
def field():
    python = os.environ.get("AUTOTUNE_FIELD_PYTHON")
    if not python:
        pytest.skip("AUTOTUNE_FIELD_PYTHON names no interpreter with tokamax and tpu-inference")
    with CompilerPool(1, python=python, limit_s=240) as pool:
        yield pool


@pytest.mark.parametrize("chip", [Chip.V5E, Chip.V6E, Chip.V7X])
@pytest.mark.parametrize(("name", "options", "shapes"), FIELD)
def test_kernels_of_others_are_never_below_it(field, name, options, shapes, chip):
    drawn, ref = random.Random(f"{name} {options} on {chip}"), find_kernel(name)
    problems = field.ask(DescribeKernel(ref=ref)).problems
    for _ in range(20):
        shape = problems.parse(drawn.choice(shapes), None, options)
        problem = shape.with_dims(**{d: n * drawn.choice((1, 2, 4)) // 2 for d, n in shape.dims})
        try:
            field.ask(
                ListChoices(ref=ref, problem=problem, chip=chip)
            )  # asks the declaration about the problem
            field.ask(CheckDeclaration(ref=ref, problem=problem, chip=chip))
        except AutotuneError:  # a shape that the kernel does not take
            continue
        assert_above(field, ref, problem, chip, drawn)
        return
    pytest.fail("no shape that was drawn is one that the kernel takes")


def assert_above(pool, ref, problem, chip, drawn):
    """Of the default config, and of some that are drawn."""
    choices, info = (
        pool.ask(ListChoices(ref=ref, problem=problem, chip=chip)),
        pool.ask(DescribeChip(chip=chip)),
    )
    configs = [choices.default]
    configs += [{n: drawn.choice(list(v)) for n, v in choices.axes.items()} for _ in range(CONFIGS)]
    for axes in configs:
        config = make_config(axes, grid_order=choices.grid)
        answer = pool.ask(CompileConfig(ref=ref, problem=problem, config=config, chip=chip)).answer
        if not isinstance(answer, tuple):
            continue
        outcome = estimate(*answer, info)
        if not isinstance(outcome, Estimated):
            assert outcome.least_us is None, (problem, config, outcome)
            continue
        found = outcome.estimate
        assert found.kernel_us >= 0.99 * found.explanation.roofline_us > 0, (problem, config)
