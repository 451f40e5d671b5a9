"""From the problems of a workload to tasks: what is asked for, on which chips."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from autotune.declaring.calls.text import with_contents
from autotune.declaring.discovery import find_kernel
from autotune.domain.compiler_options import over
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.key import KernelRef, parse_chip
from autotune.domain.workload import InvalidProblem, WorkloadProblem
from autotune.publishing.task import TuningTask
from autotune.searching.subject import ProblemOf, asked_problem


def named_problem(problem: WorkloadProblem, folder: Path) -> tuple[KernelRef, ProblemOf | None]:
    """What a problem of a workload means, on whatever chip. ``folder``: that files of kernels are
    found from. Raises ``AutotuneError``."""
    name = str(folder / problem.kernel) if ".py" in problem.kernel else problem.kernel
    ref = find_kernel(name)
    if not problem.args:
        return asked_problem(ref, problem.shape, problem.dtype, problem.options, "")
    if problem.shape or problem.dtype or problem.options:
        raise InvalidInputError("shape, dtype and options are part of args: say them there")
    return asked_problem(ref, None, None, (), with_contents(problem.args, folder))


def workload_tasks(
    problems: Sequence[WorkloadProblem], chips: Sequence[str], folder: Path, options: str = ""
) -> Iterator[TuningTask | InvalidProblem]:
    """A task for each problem and chip, and why there is no other. ``chips``: of the problems that
    name none; ``options``: of the compiler, below those of a problem. The chips of one problem
    follow one another: it is traced for all of them at once."""
    for problem in problems:
        try:
            ref, problem_of = named_problem(problem, folder)
        except AutotuneError as error:
            yield invalid_problem(problem, error)
            continue
        if not (problem.chips or chips):
            why = InvalidInputError("no chip is named: neither in the file nor by --chip")
            yield invalid_problem(problem, why)
        names = {}  # each chip once, however often and in whatever words
        for name in problem.chips or chips:
            try:
                names[parse_chip(name)] = name
            except AutotuneError as error:
                yield invalid_problem(problem, error)
        for chip in names:
            yield TuningTask(
                ref=ref,
                chip=chip,
                problem_of=problem_of,
                start_from=(problem.config,) if problem.config else (),
                options=over(options, problem.compiler_options),
                weight=problem.weight,
                name=str(problem),
                line=problem.line,
            )


def invalid_problem(problem: WorkloadProblem, error: Exception) -> InvalidProblem:
    return InvalidProblem(line=problem.line, problem=str(problem), reason=str(error))
