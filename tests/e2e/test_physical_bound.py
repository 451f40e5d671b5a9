"""No estimate is below what bytes and operations take at the chip's peak rates: the guard refuses
one that is, and finds none among configs of the catalogue drawn at random."""

import random

import pytest

from autotune.catalogue.discovery import find_kernel
from autotune.compiler.pool import CompilerPool
from autotune.cost_model.estimate import estimate
from autotune.domain.chip import Chip
from autotune.domain.config import make_config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.outcome import Estimated
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
CONFIGS = 1  # beside the default


@pytest.mark.parametrize("chip", [Chip.V5E, Chip.V5P, Chip.V6E, Chip.V7X])
@pytest.mark.parametrize("name", CASES)
def test_the_catalogue_is_never_below_it(pool: CompilerPool, name: str, chip: Chip) -> None:
    ref, (shape, options) = find_kernel(name), CASES[name]
    assert isinstance(ref, KernelRef)
    problem = pool.describe(ref).problems.parse(shape, None, options)
    choices, info = pool.choices(ref, problem, chip), pool.chip_info(chip)
    drawn = random.Random(f"{name} on {chip}")
    configs = [{n: drawn.choice(list(v)) for n, v in choices.axes.items()} for _ in range(CONFIGS)]
    for axes in (dict(choices.default), *configs):
        config = make_config(axes, grid_order=choices.grid)
        answer = pool.compile(ref, problem, config, chip).result().answer
        if not isinstance(answer, tuple):
            continue
        outcome = estimate(*answer, info)
        if not isinstance(outcome, Estimated):
            assert "peak rates" not in outcome.reason, (config, outcome.reason)
            continue
        found = outcome.estimate
        assert found.explanation is not None
        assert found.kernel_us >= 0.99 * found.explanation.roofline_us > 0, config
