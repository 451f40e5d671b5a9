"""The time of a whole function: a step of a model, or anything else that is jitted."""

from autotune.domain.compilers import Compilers, CompileStep, DescribeChip
from autotune.domain.outcome import Failure
from autotune.domain.step import CompiledStep, Step
from autotune.estimating.cost_model.step import step_time

LIMIT_AFTER_S = 900.0
"""To simulate what was compiled until the budget was spent."""


def timed_step(compilers: Compilers, question: CompileStep, tokens: int = 0) -> Step | Failure:
    """``tokens``: of a step on all devices. The chip is asked for first: a tiny kernel finds the
    options that the compiler is to be loaded with, which would trace the model again for each."""
    info = compilers.ask(DescribeChip(chip=question.chip, options=question.options))
    compiled = compilers.ask(question)
    if not isinstance(compiled, CompiledStep):
        return compiled
    return step_time(compiled, info, tokens)
