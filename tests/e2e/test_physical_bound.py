"""No estimate is below what bytes and operations take at the chip's peak rates: the guard refuses
one that is, and finds none among configs of the catalogue drawn at random, nor among kernels of
other packages at shapes drawn at random (``AUTOTUNE_FIELD_PYTHON`` names an interpreter that has
tokamax and tpu-inference; CONTRIBUTING.md says how)."""

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.compiling.pool import CompilerPool
from autotune.domain.compilers import CheckDeclaration, ListChoices
from autotune.domain.errors import AutotuneError
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated, NotEstimated
from autotune.domain.problem import make_config
from tests.e2e.test_from_jax import KERNELS
from tests.samples.questions import case_of

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
    shape, options = CASES[name]
    drawn = random.Random(f"{name} on {chip}")
    assert_above(case_of(pool, name, shape, None, options), chip, drawn)


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
    drawn = random.Random(f"{name} {options} on {chip}")
    for _ in range(20):
        case = case_of(field, name, drawn.choice(shapes), None, options)
        dims = {d: n * drawn.choice((1, 2, 4)) // 2 for d, n in case.problem.dims}
        case = replace(case, problem=case.problem.with_dims(**dims))
        try:
            case.ask(ListChoices, chip=chip)  # asks the declaration about the problem
            case.ask(CheckDeclaration, chip=chip)
        except AutotuneError:  # a shape that the kernel does not take
            continue
        assert_above(case, chip, drawn)
        return
    pytest.fail("no shape that was drawn is one that the kernel takes")


def assert_above(case, chip, drawn):
    """Of the default config, and of some that are drawn."""
    choices = case.ask(ListChoices, chip=chip)
    configs = [choices.default]
    configs += [{n: drawn.choice(list(v)) for n, v in choices.axes.items()} for _ in range(CONFIGS)]
    for axes in configs:
        outcome = case.estimated(make_config(axes, grid_order=choices.grid), chip)
        if isinstance(outcome, NotEstimated):
            assert outcome.least_us is None, (case.problem, axes, outcome)
        elif isinstance(outcome, Estimated):
            found = outcome.estimate
            least_us = found.explanation.roofline_us
            assert found.kernel_us >= 0.99 * least_us > 0, (case.problem, axes)
