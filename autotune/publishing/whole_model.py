"""From the problems of a workload to searches: what is asked for, on which chips, where to look."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from autotune.declaring.discovery import find_kernel
from autotune.domain.chip import ChipInfo, parse_chip
from autotune.domain.compilers import (
    Compilers,
    DescribeChip,
    DescribeKernel,
    DescribeToolchain,
    ProblemOfCall,
)
from autotune.domain.config import Config
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.problem import Problem
from autotune.domain.workload import InvalidProblem, WorkloadProblem
from autotune.estimating.space import Space
from autotune.searching.one_config import config_judge
from autotune.searching.subject import Subject, explore_space


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProblem:
    """A problem of a model on one chip, however often the workload names it."""

    asked: WorkloadProblem
    subject: Subject
    weight: float


class NamedProblem(NamedTuple):
    """What a problem of a workload means, on whatever chip."""

    asked: WorkloadProblem
    ref: KernelRef
    spec: KernelSpec
    problem: Problem


def name_problems(
    compilers: Compilers, asked: Sequence[WorkloadProblem], folder: Path
) -> Iterator[NamedProblem | InvalidProblem]:
    """``folder``: that files of kernels are found from."""
    for one in asked:
        try:
            ref = find_kernel(str(folder / one.kernel) if ".py" in one.kernel else one.kernel)
            if not one.args:
                spec = compilers.ask(DescribeKernel(ref=ref))
                problem = spec.problems.parse(one.shape, one.dtype, one.options)
            elif one.shape or one.dtype or one.options:
                raise InvalidInputError("shape, dtype and options are part of args: say them there")
            else:
                ref = replace(ref, call=one.args)
                spec = compilers.ask(DescribeKernel(ref=ref))
                problem = compilers.ask(ProblemOfCall(ref=ref))
        except AutotuneError as error:
            yield _invalid(one, error)
        else:
            yield NamedProblem(one, ref, spec, problem)


def find_problems(
    compilers: Compilers, asked: Sequence[WorkloadProblem], chips: Sequence[str], folder: Path
) -> tuple[list[ModelProblem], list[InvalidProblem]]:
    """Those that there are, and why there is no other. ``chips``: of those that name none. The
    chips of one problem follow one another: it is traced for all of them at once."""
    toolchain, info = (
        compilers.ask(DescribeToolchain()),
        cache(lambda chip: compilers.ask(DescribeChip(chip=chip))),
    )
    problems: dict[Key, ModelProblem] = {}
    invalid = []
    for named in name_problems(compilers, asked, folder):
        if isinstance(named, InvalidProblem):
            invalid.append(named)
            continue
        one, ref, spec, problem = named
        if not (one.chips or chips):
            why = InvalidInputError("no chip is named: neither in the file nor by --chip")
            invalid.append(_invalid(one, why))
        known: list[ChipInfo] = []  # each once, however often and in whatever words
        for name in dict.fromkeys(one.chips or chips):
            try:
                known.append(info(parse_chip(name)))
            except AutotuneError as error:
                invalid.append(_invalid(one, error))
        for chip in dict.fromkeys(known):
            subject = Subject(ref=ref, spec=spec, problem=problem, chip=chip, toolchain=toolchain)
            new = ModelProblem(asked=one, subject=subject, weight=0.0)
            same = problems.get(subject.key, new)
            problems[subject.key] = replace(same, weight=same.weight + one.weight)
    return list(problems.values()), invalid


def explore_all(
    compilers: Compilers,
    problems: Sequence[ModelProblem],
    tracing: Callable[[ModelProblem, int, int], None],
) -> Iterator[tuple[ModelProblem, Space, tuple[Config, ...]] | InvalidProblem]:
    """Each with its space and the config that the model runs today, where that is known."""
    for problem in problems:
        try:
            space = explore_space(compilers, problem.subject, partial(tracing, problem))
            today = problem.asked.config
            configs = (config_judge(compilers, problem.subject).read(today),) if today else ()
        except AutotuneError as error:
            yield _invalid(problem.asked, error)
        else:
            yield problem, space, configs


def _invalid(problem: WorkloadProblem, error: Exception) -> InvalidProblem:
    return InvalidProblem(line=problem.line, problem=str(problem), reason=str(error))
