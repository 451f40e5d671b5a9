"""The time of a whole function: a step of a model, or anything else that is jitted."""

import time
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import replace

from autotune.domain import compilers as questions
from autotune.domain.outcome import CompileFailed, Failure
from autotune.domain.step import CompiledStep, Step
from autotune.estimating.cost_model.step import step_time

LIMIT_AFTER_S = 900.0
"""To simulate what was compiled until the budget was spent."""

_EVERY_S = 2.0

Hear = Callable[[float, questions.Underway | None], None]
"""Told every few seconds for how long it has gone on, and how far it is."""


def timed_step(
    compilers: questions.Compilers,
    question: questions.CompileStep,
    tokens: int = 0,
    hear: Hear = lambda _elapsed_s, _underway: None,
) -> Step | Failure:
    """``tokens``: of a step on all devices. The chip is asked for first: a tiny kernel finds the
    options that the compiler is to be loaded with, which would trace the model again for each. What
    HBM has no room for is refused, as the compiler does where it comes to its end."""
    started = time.monotonic()
    info = compilers.ask(questions.DescribeChip(chip=question.chip, options=question.options))
    asked = compilers.submit(question)
    while not wait([asked], _EVERY_S).done:
        hear(time.monotonic() - started, compilers.underway(question))
    compiled = asked.result()
    if not isinstance(compiled, CompiledStep):
        return compiled
    step = step_time(compiled, info, tokens)
    if compiled.is_running and step.hbm_bytes > step.hbm_capacity_bytes:
        needs, there = (f"{n / 2**30:.2f}G" for n in (step.hbm_bytes, step.hbm_capacity_bytes))
        return CompileFailed(reason=f"out of HBM: needs {needs}, {there} are there")
    return replace(step, toolchain=compilers.ask(questions.DescribeToolchain()))
