"""``autotune search``."""

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

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
from autotune.domain.arguments import asked
from autotune.domain.chip import Chip
from autotune.domain.errors import InvalidInputError
from autotune.domain.job import DEFAULT_TRIALS
from autotune.domain.workload import Workload, WorkloadProblem
from autotune.measuring.attached import attached_chip, attached_chips

if TYPE_CHECKING:
    from autotune.cli.finished import SearchQuestion
    from autotune.publishing.publish import Publication
    from autotune.searching.limits import SearchLimits
    from autotune.searching.result import SearchResult


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

    limits = SearchLimits(trials=trials, timeout_s=timeout, full=full)
    if len(shapes) > 1 or len(chips) > 1:
        if starts or fixed or only:
            raise InvalidInputError("--start-from, --fix and --only are for one shape on one chip")
        problem = WorkloadProblem(kernel=kernel, dtype=dtype, options=options, args=call)
        tune_workload(
            _workload(problem, shapes, chips),
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
    timed = (device, measure_seconds) if measure and compilers["ray"] is None else None
    is_timed = timed is not None and target in attached_chips()
    question = SearchQuestion(
        ref, target, shape, dtype, options, call, compilers["python"], allow_unverified
    )
    wanted = _Wanted(limits, seed, method, timed, starts, fixed, only)
    is_plain = not (as_json or full or is_timed or wanted.is_part)
    if is_plain and compilers["ray"] is None:
        may_end_early = limits.may_end_early(method)
        if earlier := finished(question, trials, database, predicted=may_end_early):
            report.print_report(earlier)
            sys.exit(0)
    done = _searched(question, wanted, database, silent=as_json, **compilers)
    _show(done, target if measure and not is_timed else None, as_json=as_json)
    sys.exit(0 if done.published.record else 1)


def _workload(
    problem: WorkloadProblem, shapes: tuple[str, ...], chips: tuple[str, ...]
) -> Workload:
    problems = tuple(replace(problem, shape=shape) for shape in shapes or ("",))
    return Workload(problems=problems, chips=chips or (attached_chip().value,))


class _Wanted(NamedTuple):
    """``timed``: the number of the device to measure on, and for how many seconds. ``starts``,
    ``fixed``, ``only``: configs and values of axes, as they were given."""

    limits: "SearchLimits"
    seed: int
    method: str
    timed: tuple[int, float] | None
    starts: tuple[str, ...]
    fixed: tuple[str, ...]
    only: tuple[str, ...]

    @property
    def is_part(self) -> bool:
        """Whether it is not the whole space from its default on."""
        return bool(self.starts or self.fixed or self.only)


class _Searched(NamedTuple):
    """``ids``: of the trials, by their numbers; ``place``: the database."""

    result: "SearchResult"
    published: "Publication"
    ids: dict[int, int | None]
    place: str


def _show(done: _Searched, unmeasured: Chip | None, *, as_json: bool) -> None:
    """``unmeasured``: the chip that was to be measured on and is not attached."""
    from autotune.cli import report

    if as_json:
        print_json(report.as_data(done.result, done.published, done.ids))
        return
    report.print_report(report.report_of(done.result, done.published, done.ids, done.place))
    if unmeasured is not None:
        from autotune.measuring.attached import attached_chips
        from autotune.wording.publication import why_estimated

        echo(why_estimated(unmeasured, attached_chips()))


def _searched(
    question: "SearchQuestion",
    wanted: _Wanted,
    database: str | None,
    *,
    silent: bool,
    **compilers: Any,
) -> _Searched:
    """A search of one problem, from the compilers to the record."""
    from autotune.cli import progress
    from autotune.cli.observer import ReportingObserver, say_interrupted
    from autotune.publishing.timing import Timing
    from autotune.publishing.tuning import Plan, tune
    from autotune.searching.axis_values import wanted_values
    from autotune.searching.one_config import config_judge
    from autotune.searching.subject import explore_space

    ref, target, call = question.ref, question.chip, question.call
    plan = Plan(
        limits=wanted.limits,
        seed=wanted.seed,
        method=wanted.method,
        allow_unverified=question.allow_unverified,
    )
    if wanted.timed is not None:
        device, seconds = wanted.timed
        python = compilers["python"]
        timing = Timing(device=device, seconds=seconds, seed=wanted.seed, python=python)
        plan = replace(plan, timing=timing)
    with new_pool(**compilers) as pool, progress.terminal_observer(silent=silent) as terminal:
        python = compiles_with(pool, compilers["python"], compilers["ray"])
        subject = subject_of(
            pool, ref, target, question.shape, question.dtype, question.options, call
        )
        if wanted.starts:
            judge = config_judge(pool, subject)
            plan = replace(plan, start_from=tuple(judge.read(text) for text in wanted.starts))
        values = wanted_values(wanted.fixed, wanted.only)
        space = explore_space(pool, subject, terminal.tracing, values)
        with open_database(database, create=True) as store:
            observer = ReportingObserver(
                terminal,
                store.searches,
                subject.key,
                asked(ref, subject.spec.name, call or subject.problem, target, python),
            )
            result, published = tune(pool, store, subject, space, plan, observer)
            observer.end("" if wanted.fixed or wanted.only else result.stopped_by)
            if published is None:
                say_interrupted([result], str(store))
            ids = {t.number: store.trial_id(subject.key, t.number) for t in result.trials}
            return _Searched(result, published, ids, str(store))
