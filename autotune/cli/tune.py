"""``autotune tune``: all problems of a model, on all its chips."""

import re
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from autotune.cli import shared
from autotune.domain.compiler_options import over
from autotune.domain.errors import InvalidInputError
from autotune.domain.workload import InvalidProblem, Workload, WorkloadProblem, read_workload

if TYPE_CHECKING:
    from autotune.publishing.task import Plan

_BUDGET = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+)s?)?")


class Duration(click.ParamType[float]):
    """``2h``, ``1h30m``, ``45s`` or seconds."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        match = _BUDGET.fullmatch(str(value))
        if not match or not any(match.groups()):
            self.fail(f"{value!r} is no time such as 2h, 90m or 30s", param, ctx)
        hours, minutes, seconds = (int(group or 0) for group in match.groups())
        return hours * 3600.0 + minutes * 60.0 + seconds


@click.command()
@click.argument("workload", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--chip", "chips", multiple=True, help="Instead of those in the file.")
@click.option(
    "--jax",
    multiple=True,
    metavar="VERSION",
    help="Compile with the JAX of an environment of `autotune env` instead of those in the file; "
    "may be given several times.",
)
@click.option("--python", default=None, metavar="INTERPRETER", help="Or of this Python.")
@click.option(
    "--budget",
    "timeout",
    default=None,
    type=Duration(),
    help="Start no more trials after this time (2h, 90m): those before go where they pay most.",
)
@click.option(
    "--name",
    default=None,
    help="What the dashboard calls it, instead of the name of the file. An earlier run of "
    "this name is not shown any more.",
)
@shared.plan_options
@shared.ray_option
@shared.pool_options
@shared.database_and_json
def tune(
    workload: Path,
    chips: tuple[str, ...],
    jax: tuple[str, ...],
    python: str | None,
    name: str | None,
    plan: "Plan",
    database: str | None,
    as_json: bool,
    **pool: Any,
) -> None:
    """Tune all problems of WORKLOAD, a TOML file, on all its chips, with compilers that stay warm.

    Every problem gets its default and its first candidates. Then each trial goes to the problem
    where it promises to save most, by weight. Ctrl-C loses nothing: the same command goes on. Exit
    code 1: some problem could not be tuned.
    """
    given = load_workload(workload)
    if chips:
        problems = tuple(replace(problem, chips=()) for problem in given.problems)
        given = replace(given, chips=chips, problems=problems)
    if jax:
        if python is not None:
            raise InvalidInputError("--jax and --python both name an interpreter: give one of them")
        problems = tuple(replace(problem, jax=()) for problem in given.problems)
        given = replace(given, jax=jax, problems=problems)
    name = name or workload.stem
    folder = workload.parent
    tune_workload(given, folder, plan, database, as_json=as_json, python=python, name=name, **pool)


def tune_workload(
    workload: Workload,
    folder: Path,
    plan: "Plan",
    database: str | None,
    *,
    as_json: bool,
    python: str | None,
    name: str = "",
    **pool: Any,
) -> NoReturn:
    """Tune it, report, and end the process. ``folder``: that files of kernels are found from;
    ``name``: that what became of it is kept under; ``python``: in the place of the toolchains of
    the workload; ``pool``: what ``new_pool`` takes beside it."""
    from autotune.cli.workload_report import print_workload, tuned_workload
    from autotune.publishing.opening import opened
    from autotune.publishing.task import NotTuned, TuningResult, workload_tasks
    from autotune.publishing.tuning import tune_all
    from autotune.wording.bars import workload_observer

    tuned: list[TuningResult] = []
    invalid = list(workload.invalid)
    interpreters = _interpreters(workload, python, pool["ray"])
    began = time.monotonic()
    with shared.open_database(database, create=True) as store:
        for left, (interpreter, part) in zip(
            range(len(interpreters), 0, -1), interpreters.items(), strict=True
        ):
            new_compilers, plan_here = shared.tuning_pool(
                _share(plan, time.monotonic() - began, left), python=interpreter, **pool
            )
            with workload_observer(silent=as_json) as observer:
                tasks = []
                options = over(plan_here.options, part.compiler_options)
                for task in workload_tasks(part.problems, part.chips, folder, options):
                    if isinstance(task, InvalidProblem):
                        observer.announce(str(task))
                        invalid.append(task)
                    else:
                        tasks.append(task)
                results = tune_all(new_compilers, opened(store), tasks, plan_here, observer)
            tuned += [result for result in results if isinstance(result, TuningResult)]
            invalid += [result.problem for result in results if isinstance(result, NotTuned)]
            if name and (tuned or invalid):
                store.workloads.save(tuned_workload(name, tuned, invalid, workload.undeclared))
            if any(result.publication is None for result in tuned):
                shared.say_interrupted(sum(len(result.trials) for result in tuned), str(store))
        place = str(store)
    print_workload(tuned, invalid, workload.undeclared, place, as_json=as_json)
    sys.exit(1 if invalid or not all(result.record for result in tuned) else 0)


def _share(plan: "Plan", spent_s: float, left: int) -> "Plan":
    """With a part of the time that is left, for one of so many interpreters."""
    timeout_s = plan.limits.timeout_s
    if timeout_s is None:
        return plan
    return replace(
        plan, limits=replace(plan.limits, timeout_s=max(0.0, (timeout_s - spent_s) / left))
    )


def load_workload(path: Path) -> Workload:
    """Raises ``InvalidInputError`` with the file's name."""
    try:
        return read_workload(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, InvalidInputError) as error:
        raise InvalidInputError(f"{path}: {error}") from error


def _interpreters(given: Workload, python: str | None, ray: str | None) -> dict[str, Workload]:
    """What each compiles."""
    if python is not None:
        return {python: given}

    @cache
    def of(version: str) -> str:
        return shared.interpreter_of(version, ray)

    parts: dict[str, list[WorkloadProblem]] = {}
    for problem in given.problems:
        versions = problem.jax or given.jax
        for interpreter in dict.fromkeys(map(of, versions)) or (sys.executable,):
            parts.setdefault(interpreter, []).append(problem)
    return {
        interpreter: replace(given, problems=tuple(part)) for interpreter, part in parts.items()
    }
