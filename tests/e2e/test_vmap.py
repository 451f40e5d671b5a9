"""A kernel under ``vmap`` through the real compiler, on one core and on two."""

import pytest

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import (
    CompileConfig,
    DescribeChip,
    DescribeKernel,
    ListChoices,
    VerifyConfig,
)
from autotune.domain.key import Chip
from autotune.estimating.space import explore
from tests.samples import vmapped

REF = find_kernel(f"{vmapped.__file__}:KERNEL")


@pytest.mark.parametrize("chip", [Chip.V6E, Chip.V5P])
def test_every_candidate_compiles(pool: CompilerPool, chip: Chip) -> None:
    problem = pool.ask(DescribeKernel(ref=REF)).problems.parse("6x2048", None, [])
    choices = pool.ask(ListChoices(ref=REF, problem=problem))
    space = explore(pool, REF, problem, choices, pool.ask(DescribeChip(chip=chip)))
    assert space.passed_on.semantics
    for candidate in space.candidates:
        config = candidate.config
        answer = pool.ask(CompileConfig(ref=REF, problem=problem, config=config, chip=chip)).answer
        assert isinstance(answer, tuple), answer
        assert answer[1].simulation is not None, answer[1].refusal
        assert answer[0].dimension_semantics == candidate.trace.dimension_semantics
        verdict = pool.ask(VerifyConfig(ref=REF, problem=problem, config=config, chip=chip))
        assert verdict.ok, verdict
