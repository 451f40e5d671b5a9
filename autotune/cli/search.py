"""``autotune search``."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from autotune.cli import shared
from autotune.domain.errors import InvalidInputError
from autotune.domain.workload import Workload, WorkloadProblem
from autotune.measuring.attached import attached_chip, attached_chips, chip_or_attached
from autotune.wording.output import echo

if TYPE_CHECKING:
    from autotune.publishing.task import Plan, TuningTask


@click.command()
@click.argument("kernel")
@partial(shared.call_options, several=True)
@click.option(
    "--chip",
    "chips",
    multiple=True,
    help="TPU generation, default the attached TPU; may be given several times.",
)
@shared.plan_options
@click.option(
    "--timeout",
    default=None,
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Start no more trials after this time.",
)
@shared.ray_option
@shared.compiler_options
@click.option(
    "--method",
    default="gp",
    show_default=True,
    type=click.Choice(["gp", "tpe", "random"]),
    help="How candidates are proposed.",
)
@click.option(
    "--start-from",
    "starts",
    multiple=True,
    metavar="block_m=256,…",
    help="Try this config right after the default, and compare the winner with it; as --config of "
    "`autotune estimate`.",
)
@click.option(
    "--fix",
    "fixed",
    multiple=True,
    metavar="AXIS=VALUE",
    help="Search with this value of an axis only.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="AXIS=A,B,…",
    help="Search with these values of an axis only.",
)
@shared.database_and_json
def search(
    kernel: str,
    shapes: tuple[str, ...],
    dtype: str | None,
    options: tuple[str, ...],
    call: str,
    chips: tuple[str, ...],
    starts: tuple[str, ...],
    fixed: tuple[str, ...],
    only: tuple[str, ...],
    plan: "Plan",
    database: str | None,
    as_json: bool,
    **compilers: Any,
) -> None:
    """Find the best legal config of KERNEL for a problem and a TPU generation.

    KERNEL is a name from `autotune kernels` or path/to/file.py:NAME. A decorated function is
    given its arguments with --args. Ctrl-C loses nothing: the same command resumes. What is
    published is the best of all trials of the problem, those of earlier and wider searches
    included.

    Several shapes or chips are searched side by side, as by `autotune tune`.
    """
    if len(shapes) > 1 or len(chips) > 1:
        if starts or fixed or only:
            raise InvalidInputError("--start-from, --fix and --only are for one shape on one chip")
        problem = WorkloadProblem(kernel=kernel, dtype=dtype, options=options, args=call)
        _search_all(problem, shapes, chips, plan, database, as_json=as_json, **compilers)
    from autotune.declaring.discovery import find_kernel
    from autotune.publishing.task import TuningTask
    from autotune.searching.subject import asked_problem, wanted_values

    target = chip_or_attached(next(iter(chips), None))
    shape = next(iter(shapes), None)
    ref, problem_of = asked_problem(find_kernel(kernel), shape, dtype, options, call)
    task = TuningTask(
        ref=ref,
        chip=target,
        problem_of=problem_of,
        start_from=starts,
        only=wanted_values(fixed, only),
    )
    _search_one(task, plan, database, as_json=as_json, **compilers)


def _search_all(
    problem: WorkloadProblem,
    shapes: tuple[str, ...],
    chips: tuple[str, ...],
    plan: "Plan",
    database: str | None,
    *,
    as_json: bool,
    **compilers: Any,
) -> NoReturn:
    """As the workload of all shapes on all chips."""
    from autotune.cli.tune import tune_workload

    problems = tuple(replace(problem, shape=shape) for shape in shapes or ("",))
    workload = Workload(problems=problems, chips=chips or (attached_chip().value,))
    tune_workload(workload, Path(), plan, database, as_json=as_json, **compilers)


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
