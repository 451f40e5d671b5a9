"""What matching calls safe, by arithmetic alone, is legal when it is traced."""

from dataclasses import replace
from math import prod

import pytest

from autotune.candidates.rules import violation
from autotune.candidates.space import explore
from autotune.candidates.vmem import vmem_use
from autotune.catalogue.discovery import find_kernel
from autotune.compiler.pool import CompilerPool
from autotune.domain.chip import Chip
from autotune.lookups.matching import is_safe
from tests.samples.matching import record

MANY_BYTES = 1 << 40


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel, tuned, asked",
    [
        ("matmul", "512x256x512", ("1024x256x512", "256x256x256", "512x512x512", "768x384x640")),
        (
            "flash_attention",
            "1x2x2x512x512x128",
            ("1x2x2x1024x512x128", "1x2x2x512x1024x128", "1x2x2x256x256x128"),
        ),
        ("rmsnorm", "1024x512", ("2048x512", "512x512", "1000x512")),
        ("vector_add", "10000", ("20000", "5000", "8192")),
    ],
)
def test_safe_is_legal(pool: CompilerPool, kernel: str, tuned: str, asked: tuple[str, ...]) -> None:
    ref, chip = find_kernel(kernel), Chip.V4  # a megacore: semantics matter
    spec, info = pool.describe(ref), pool.chip_info(chip)
    here = spec.problems.parse(tuned)
    space = explore(pool, ref, here, pool.choices(ref, here), info)
    base = record()
    estimate = replace(base.estimate, vmem_used_bytes=1, vmem_allowed_bytes=MANY_BYTES)
    checked = 0
    for shape in asked:
        there = spec.problems.parse(shape)
        growth = prod(-(-size // here[name]) for name, size in there.dims)
        for candidate in space.candidates[::3]:
            config = candidate.config
            of = replace(
                base, key=replace(base.key, problem=here), config=config, estimate=estimate
            )
            if not is_safe(of, there, spec.cuts):
                continue
            (before,), (after,) = (
                next(pool.traces(ref, p, [config], orders=False, chip=chip)) for p in (here, there)
            )
            checked += 1
            assert violation(after, info) is None, (config, shape)
            needed = [vmem_use(trace, info).expected_bytes for trace in (before, after)]
            assert needed[1] <= needed[0] * growth
    assert checked > 2
