"""A kernel under ``vmap`` through the real compiler, on one core and on two."""

import pytest

from autotune.compiling.pool import CompilerPool
from autotune.domain.compilers import DescribeChip, ListChoices
from autotune.domain.key import Chip
from autotune.estimating.space import explore
from tests.samples import vmapped
from tests.samples.questions import case_of


@pytest.mark.parametrize("chip", [Chip.V6E, Chip.V5P])
def test_every_candidate_compiles(pool: CompilerPool, chip: Chip) -> None:
    case = case_of(pool, f"{vmapped.__file__}:KERNEL", "6x2048")
    info = pool.ask(DescribeChip(chip=chip))
    space = explore(pool, case.ref, case.problem, case.ask(ListChoices), info)
    assert space.passed_on.semantics
    for candidate in space.candidates:
        config = candidate.config
        answer = case.compile(config, chip)
        assert isinstance(answer, tuple), answer
        assert answer[1].simulation is not None, answer[1].refusal
        assert answer[0].dimension_semantics == candidate.trace.dimension_semantics
        verdict = case.verify(config, chip)
        assert verdict.ok, verdict
