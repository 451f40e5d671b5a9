"""``autotune tune``: all problems of a model, on all its chips; ``autotune search``: one."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from autotune.cli import shared
from autotune.cli.duration import Duration
from autotune.cli.problems import problem_options
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import to_data
from autotune.domain.compiler_options import over
from autotune.domain.compilers import ReadCall
from autotune.domain.errors import InvalidInputError, NoDeclarationError
from autotune.domain.step import Step, tuned_step
from autotune.domain.store import Store
from autotune.domain.workload import InvalidProblem, Workload, WorkloadProblem, load_workload
from autotune.measuring.attached import attached_chip, attached_chips, chip_or_attached
from autotune.wording.output import echo

if TYPE_CHECKING:
    from autotune.cli.step import StepQuestion
    from autotune.publishing.publish import NewCompilers
    from autotune.publishing.task import Plan, TuningResult, TuningTask


@click.command()
@click.argument("workload", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@shared.repeated_option("--chip", "chips", help="Instead of those in the file.")
@shared.repeated_option(
    "--jax",
    metavar="VERSION",
    help="Compile with the JAX of an environment of `autotune env` instead of those in the file; "
    "may be given several times.",
)
@click.option("--python", metavar="INTERPRETER", help="Compile with that of this Python.")
@click.option(
    "--budget",
    "timeout",
    type=Duration(),
    help="Start no more trials after this time (2h, 90m): those before go where they pay most.",
)
@click.option(
    "--name",
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

    Problems of a kernel follow one another: each knows what those before it have taught. With
    --budget all get their defaults and first candidates, then each trial goes where it promises to
    save most, by weight. Ctrl-C loses nothing: the same command goes on. Exit code 1: some problem
    could not be tuned.
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
    from autotune.cli.reports import print_workload, tuned_workload
    from autotune.cli.step import step_of
    from autotune.wording.step import step_data, tuned_line

    step = step_of(workload, folder)
    tuned: list[TuningResult] = []
    invalid = list(workload.invalid)
    interpreters = _interpreters(workload, python, pool["ray"])
    began = time.monotonic()
    with shared.open_database(database, create=True) as store:
        known = store.workloads.find(name) if step else None
        for left, (interpreter, part) in zip(
            range(len(interpreters), 0, -1), interpreters.items(), strict=True
        ):
            new_compilers, plan_here = shared.tuning_pool(
                _share(plan, time.monotonic() - began, left), python=interpreter, **pool
            )
            results, failed = _tuned(new_compilers, store, part, folder, plan_here, silent=as_json)
            tuned += results
            invalid += failed
            saved = tuned_workload(name, tuned, invalid, workload.undeclared)
            saved = replace(saved, steps=known[0].steps if known else ())
            if name and (tuned or invalid):
                store.workloads.save(saved)
            if any(result.publication is None for result in tuned):
                shared.say_interrupted(sum(len(result.trials) for result in tuned), str(store))
        place = str(store)
    if tuned and all(result.search is None for result in tuned):
        echo("all of it was searched before: nothing is done again", err=True)
    both = _steps(step, tuned, next(iter(interpreters), ""), database, silent=as_json, **pool)
    if both and name:
        with shared.open_database(database, create=True) as store:
            store.workloads.save(replace(saved, steps=tuple(starmap(tuned_step, both))))
    steps = [step_data(new, {}, old) if as_json else tuned_line(old, new) for old, new in both]
    print_workload(tuned, invalid, workload.undeclared, place, steps, as_json=as_json)
    sys.exit(1 if invalid or not all(result.record for result in tuned) else 0)


def _tuned(
    new_compilers: "NewCompilers",
    store: "Store",
    part: Workload,
    folder: Path,
    plan: "Plan",
    *,
    silent: bool,
) -> "tuple[list[TuningResult], list[InvalidProblem]]":
    """What became of the problems of a part, and those that cannot be tuned."""
    from autotune.publishing.publish import opened
    from autotune.publishing.task import NotTuned, TuningResult, TuningTask, workload_tasks
    from autotune.publishing.tuning import tune_all
    from autotune.wording.bars import workload_observer

    tasks = list[TuningTask]()
    tuned = list[TuningResult]()
    invalid = list[InvalidProblem]()
    options = over(plan.options, part.compiler_options)
    with workload_observer(silent=silent) as observer:
        for task in workload_tasks(part.problems, part.chips, folder, options):
            if isinstance(task, InvalidProblem):
                observer.announce(str(task))
                invalid.append(task)
            else:
                tasks.append(task)
        for result in tune_all(new_compilers, opened(store), tasks, plan, observer):
            if isinstance(result, NotTuned):
                invalid.append(result.problem)
            else:
                tuned.append(result)
    return tuned, invalid


def _steps(
    step: "StepQuestion | None",
    tuned: "Sequence[TuningResult]",
    interpreter: str,
    database: str | None,
    *,
    silent: bool,
    ray: str | None,
    **pool: Any,
) -> "list[tuple[Step, Step]]":
    """The step before and after on each chip, where the workload names one."""
    from autotune_db.url import parse_database

    if step is None or not tuned or ray is not None:
        return []
    step = replace(step, chips=sorted({result.key.chip for result in tuned}))
    ways = [(interpreter, source) for source in ("", parse_database(database).full_url)]
    return step.pairs(ways, silent=silent, **pool)


def _share(plan: "Plan", spent_s: float, left: int) -> "Plan":
    """With a part of the time that is left, for one of so many interpreters."""
    timeout_s = plan.limits.timeout_s
    if timeout_s is None:
        return plan
    return replace(
        plan, limits=replace(plan.limits, timeout_s=max(0.0, (timeout_s - spent_s) / left))
    )


def _interpreters(given: Workload, python: str | None, ray: str | None) -> dict[str, Workload]:
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


@click.command()
@click.argument("kernel")
@partial(problem_options, several=True)
@shared.repeated_option(
    "--chip",
    "chips",
    help="TPU generation, default the attached TPU; may be given several times.",
)
@shared.plan_options
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Start no more trials after this time.",
)
@shared.ray_option
@shared.compiler_options
@shared.default_option(
    "--method",
    default="gp",
    type=click.Choice(["gp", "tpe", "random"]),
    help="How candidates are proposed.",
)
@shared.repeated_option(
    "--start-from",
    "starts",
    metavar="block_m=256,…",
    help="Try this config right after the default, and compare the winner with it; as --config of "
    "`autotune estimate`.",
)
@shared.repeated_option(
    "--fix",
    "fixed",
    metavar="AXIS=VALUE",
    help="Search with this value of an axis only.",
)
@shared.repeated_option(
    "--only", metavar="AXIS=A,B,…", help="Search with these values of an axis only."
)
@shared.repeated_option(
    "--tune-compiler-option",
    "tuned",
    metavar="NAME=A,B,…",
    help="Search with these values of an option of the TPU compiler as well, and without it; may "
    "be given several times.",
)
@shared.flag_option(
    "--tune-compiler-options",
    "listed",
    help="The same with four options that the documentation lists.",
)
@shared.database_and_json
def search(
    kernel: str,
    words: Sequence[ProblemWords],
    chips: tuple[str, ...],
    starts: tuple[str, ...],
    fixed: tuple[str, ...],
    only: tuple[str, ...],
    tuned: tuple[str, ...],
    listed: bool,
    plan: "Plan",
    database: str | None,
    as_json: bool,
    **compilers: Any,
) -> None:
    """Find the best legal config of KERNEL for a problem and a TPU generation.

    KERNEL is a name from `autotune kernels` or path/to/file.py:NAME. --shape or --args
    names the problem. Ctrl-C loses nothing: the same command resumes. What is
    published is the best of all trials of the problem, those of earlier and wider searches
    included.

    Several shapes or chips are searched side by side, as by `autotune tune`.
    """
    if len(words) > 1 or len(chips) > 1:
        if starts or fixed or only or tuned or listed:
            raise InvalidInputError(
                "--start-from, --fix, --only and --tune-compiler-option(s) are for one shape on "
                "one chip"
            )
        problems = tuple(
            WorkloadProblem(
                kernel=kernel,
                shape=each.shape,
                dtype=each.dtype,
                options=each.options,
                args=each.call,
            )
            for each in words
        )
        chips = chips or (attached_chip().value,)
        workload = Workload(problems=problems, chips=chips)
        tune_workload(workload, Path(), plan, database, as_json=as_json, **compilers)
    from autotune.publishing.task import TuningTask
    from autotune.searching.option_axes import tuned_options
    from autotune.searching.subject import wanted_values

    target = chip_or_attached(next(iter(chips), None))
    wanted = tuned_options(tuned, listed=listed)
    task = TuningTask(
        ref=find_kernel(kernel),
        chip=target,
        problem=words[0],
        start_from=starts,
        only=wanted_values(fixed, only),
        tuned_options=wanted,
    )
    try:
        _search_one(task, plan, database, as_json=as_json, **compilers)
    except NoDeclarationError:
        if not (wanted and words[0]):
            raise
        _search_options(task, words[0], plan, as_json=as_json, **compilers)


def _search_options(
    task: "TuningTask", words: ProblemWords, plan: "Plan", *, as_json: bool, **compilers: Any
) -> None:
    """Of a function that is no kernel."""
    from autotune.publishing.with_options import search_options
    from autotune.wording.option_lines import function_lines

    new_compilers, plan = shared.tuning_pool(plan, **compilers)
    with new_compilers() as pool:
        limits, say = plan.limits.trials, partial(echo, err=True)
        ref = pool.ask(ReadCall(ref=task.ref, words=words))
        tried = search_options(
            pool, ref, task.chip, plan.options, task.tuned_options, say, limits, plan.seed
        )
    if as_json:
        shared.print_json([to_data(trial) for trial in tried])
    else:
        for line in function_lines(str(task.ref), task.chip, tried):
            echo(line)


def _search_one(
    task: "TuningTask", plan: "Plan", database: str | None, *, as_json: bool, **compilers: Any
) -> NoReturn:
    """Report, and end the process."""
    from autotune.publishing.tuning import tune_one
    from autotune.wording import report
    from autotune.wording.bars import terminal_observer
    from autotune.wording.publication import why_estimated

    is_wanted = plan.timing is not None
    new_compilers, plan = shared.tuning_pool(plan, **compilers)
    plan = replace(plan, anew=as_json)  # which has the space as well
    with terminal_observer(silent=as_json) as observer:
        tuned = tune_one(
            new_compilers, partial(shared.open_database, database), task, plan, observer
        )
        if tuned.publication is None:
            shared.say_interrupted(len(tuned.trials), tuned.place)
    if as_json:
        shared.print_json(report.as_data(tuned))
    else:
        report.print_report(tuned)
        if tuned.search and is_wanted and not plan.times(task.chip):
            echo(why_estimated(task.chip, attached_chips()))
    sys.exit(0 if tuned.record else 1)
