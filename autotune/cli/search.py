"""``autotune search``."""

import sys
from dataclasses import replace
from functools import partial
from typing import Any

import click

from autotune.cli.options import (
    call_options,
    chip_or_attached,
    compiler_options,
    compiles_with,
    database_and_json,
    full_option,
    measuring_options,
    new_pool,
    open_database,
    print_json,
    ray_option,
    subject_of,
)
from autotune.cli.output import echo
from autotune.domain.errors import InvalidInputError
from autotune.domain.job import DEFAULT_TRIALS
from autotune.domain.workload import Workload, WorkloadProblem
from autotune.measuring.attached import attached_chip, attached_chips
from autotune.wording.command import asked


@click.command()
@click.argument("kernel")
@partial(call_options, several=True)
@click.option(
    "--chip",
    "chips",
    multiple=True,
    help="TPU generation, default the attached TPU; may be given several times.",
)
@click.option(
    "--trials",
    default=DEFAULT_TRIALS,
    show_default=True,
    type=click.IntRange(min=1),
    help="Stop when the key has this many trials, earlier runs included.",
)
@click.option(
    "--timeout",
    default=None,
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Start no more trials after this time.",
)
@ray_option
@full_option
@compiler_options
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--method",
    default="gp",
    show_default=True,
    type=click.Choice(["gp", "tpe", "random"]),
    help="How candidates are proposed.",
)
@click.option(
    "--allow-unverified",
    is_flag=True,
    help="Publish a winner that could not be verified; it carries the label.",
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
@measuring_options
@database_and_json
def search(
    kernel: str,
    shapes: tuple[str, ...],
    dtype: str | None,
    options: tuple[str, ...],
    call: str,
    chips: tuple[str, ...],
    trials: int,
    timeout: float | None,
    full: bool,
    seed: int,
    method: str,
    allow_unverified: bool,
    starts: tuple[str, ...],
    fixed: tuple[str, ...],
    only: tuple[str, ...],
    measure: bool,
    device: int,
    measure_seconds: float,
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
    from autotune.cli import report
    from autotune.cli.finished import SearchQuestion, finished
    from autotune.cli.tune import tune_workload
    from autotune.declaring.discovery import find_kernel
    from autotune.searching.limits import SearchLimits

    if len(shapes) > 1 or len(chips) > 1:
        if starts or fixed or only:
            raise InvalidInputError("--start-from, --fix and --only are for one shape on one chip")
        tune_workload(
            Workload(
                problems=tuple(
                    WorkloadProblem(
                        kernel=kernel, shape=shape, dtype=dtype, options=options, args=call
                    )
                    for shape in shapes or ("",)
                ),
                chips=chips or (attached_chip().value,),
            ),
            None,
            trials=trials,
            timeout_s=timeout,
            full=full,
            seed=seed,
            method=method,
            allow_unverified=allow_unverified,
            timing=(device, measure_seconds) if measure else None,
            database=database,
            as_json=as_json,
            **compilers,
        )
    shape, chip = next(iter(shapes), None), next(iter(chips), None)
    target, ref = chip_or_attached(chip), find_kernel(kernel)
    limits = SearchLimits(trials=trials, timeout_s=timeout, full=full)
    is_farm = compilers["ray"] is not None
    is_timed = measure and not is_farm and target in attached_chips()
    if not (as_json or full or starts or fixed or only or is_timed or is_farm):
        question = SearchQuestion(
            ref, target, shape, dtype, options, call, compilers["python"], allow_unverified
        )
        if earlier := finished(question, trials, database, predicted=limits.may_end_early(method)):
            report.print_report(earlier)
            sys.exit(0)

    from autotune.cli import progress
    from autotune.cli.observer import ReportingObserver, say_interrupted
    from autotune.publishing.timing import Timing, why_estimated
    from autotune.publishing.tuning import Plan, tune
    from autotune.searching.axis_values import wanted_values
    from autotune.searching.one_config import config_judge
    from autotune.searching.subject import explore_space

    python = compilers["python"]
    timing = Timing(device=device, seconds=measure_seconds, seed=seed, python=python)
    plan = Plan(
        limits=limits,
        seed=seed,
        method=method,
        allow_unverified=allow_unverified,
        timing=timing if measure and not is_farm else None,
    )
    with new_pool(**compilers) as pool, progress.terminal_observer(silent=as_json) as terminal:
        python = compiles_with(pool, python, compilers["ray"])
        subject = subject_of(pool, ref, target, shape, dtype, options, call)
        if starts:
            judge = config_judge(pool, subject)
            plan = replace(plan, start_from=tuple(judge.read(text) for text in starts))
        space = explore_space(pool, subject, terminal.tracing, wanted_values(fixed, only))
        with open_database(database, create=True) as store:
            observer = ReportingObserver(
                terminal,
                store.searches,
                subject.key,
                asked(ref, subject.spec.name, call or subject.problem, target, python),
            )
            result, published = tune(pool, store, subject, space, plan, observer)
            observer.end("" if fixed or only else result.stopped_by)
            if published is None:
                say_interrupted([result], str(store))
            ids = {t.number: store.trial_id(subject.key, t.number) for t in result.trials}
            place = str(store)
    if as_json:
        print_json(report.as_data(result, published, ids))
    else:
        report.print_report(report.report_of(result, published, ids, place))
        if measure and not is_timed:
            echo(why_estimated(target))
    sys.exit(0 if published.record else 1)
