"""``autotune tune``: all problems of a model, on all its chips."""

import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from autotune.cli.options import (
    compiles_with,
    database_and_json,
    full_option,
    interpreter_of,
    measuring_options,
    new_pool,
    open_database,
    pool_options,
    ray_option,
)
from autotune.domain.arguments import asked
from autotune.domain.errors import InvalidInputError
from autotune.domain.job import DEFAULT_TRIALS
from autotune.domain.workload import InvalidProblem, Workload, WorkloadProblem
from autotune.domain.workload_text import read_workload

if TYPE_CHECKING:
    from autotune.cli.workload_report import TunedProblem
    from autotune.domain.compilers import Compilers
    from autotune.publishing.publish import Publication
    from autotune.publishing.tuning import Plan
    from autotune.publishing.whole_model import ModelProblem
    from autotune.searching.result import SearchResult

_BUDGET = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+)s?)?")


class Duration(click.ParamType[float]):
    """``2h``, ``1h30m``, ``45s`` or seconds."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        found = _BUDGET.fullmatch(str(value))
        if not found or not any(found.groups()):
            self.fail(f"{value!r} is no time such as 2h, 90m or 30s", param, ctx)
        hours, minutes, seconds = (int(group or 0) for group in found.groups())
        return hours * 3600.0 + minutes * 60.0 + seconds


@click.command()
@click.argument("workload", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--chip", "chips", multiple=True, help="In the place of those in the file.")
@click.option(
    "--jax",
    multiple=True,
    metavar="VERSION",
    help="Compile with the JAX of an environment of `autotune env`, in the place of those in the "
    "file; may be given several times.",
)
@click.option("--python", default=None, metavar="INTERPRETER", help="Or with that of this one.")
@click.option(
    "--trials",
    default=DEFAULT_TRIALS,
    show_default=True,
    type=click.IntRange(min=1),
    help="Of each problem on each chip, earlier runs included.",
)
@click.option(
    "--budget",
    default=None,
    type=Duration(),
    help="Start no more trials after this time (2h, 90m): those before go where they pay most.",
)
@click.option(
    "--name",
    default=None,
    help="What the dashboard calls it, in the place of the name of the file; the run before of the "
    "same name is shown no more.",
)
@full_option
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--allow-unverified",
    is_flag=True,
    help="Publish winners that could not be verified; they carry the label.",
)
@ray_option
@pool_options
@measuring_options
@database_and_json
def tune(
    workload: Path,
    chips: tuple[str, ...],
    jax: tuple[str, ...],
    python: str | None,
    trials: int,
    budget: float | None,
    name: str | None,
    full: bool,
    seed: int,
    allow_unverified: bool,
    measure: bool,
    device: int,
    measure_seconds: float,
    database: str | None,
    as_json: bool,
    **pool: Any,
) -> None:
    """Tune all problems of WORKLOAD, a TOML file, on all its chips, with compilers that stay warm.

    Every problem gets its default and its first candidates before any gets more; then trials go
    where the weight of a problem and what is still to be gained are largest. Ctrl-C loses nothing:
    the same command goes on. Exit code 1: some problem could not be tuned.
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
    tune_workload(
        given,
        workload.parent,
        trials=trials,
        timeout_s=budget,
        full=full,
        seed=seed,
        allow_unverified=allow_unverified,
        timing=(device, measure_seconds) if measure else None,
        database=database,
        as_json=as_json,
        python=python,
        name=name or workload.stem,
        **pool,
    )


def tune_workload(
    workload: Workload,
    folder: Path | None,
    *,
    trials: int,
    timeout_s: float | None,
    full: bool,
    seed: int,
    allow_unverified: bool,
    timing: tuple[int, float] | None,
    database: str | None,
    as_json: bool,
    python: str | None,
    method: str = "gp",
    name: str = "",
    **pool: Any,
) -> NoReturn:
    """Tune it, report, and end the process. ``folder``: that files of kernels are found from;
    ``name``: that what became of it is kept under;
    ``timing``: on which device, for how many seconds at most; ``python``: in the place of the
    toolchains of the workload; ``pool``: what ``new_pool`` takes beside it."""
    from autotune.publishing.timing import Timing
    from autotune.publishing.tuning import Plan
    from autotune.searching.limits import SearchLimits

    plan = Plan(
        limits=SearchLimits(trials=trials, timeout_s=timeout_s, full=full),
        seed=seed,
        method=method,
        allow_unverified=allow_unverified,
        timing=timing and Timing(device=timing[0], seconds=timing[1], seed=seed),
    )
    run = WorkloadRun(
        workload=workload,
        name=name,
        folder=folder or Path(),
        plan=plan,
        pool=pool,
        silent=as_json,
    )
    run.run(_interpreters(workload, python, pool["ray"]), database, as_json=as_json)


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
        return interpreter_of(version, ray)

    found: dict[str, list[WorkloadProblem]] = {}
    for problem in given.problems:
        versions = problem.jax or given.jax
        for one in dict.fromkeys(map(of, versions)) or (sys.executable,):
            found.setdefault(one, []).append(problem)
    return {one: replace(given, problems=tuple(some)) for one, some in found.items()}


@dataclass(slots=True, kw_only=True)
class WorkloadRun:
    """Tunes a workload, one interpreter after another, and reports. ``name``: that what became of
    it is kept under, if any; ``folder``: that files of kernels are found from; ``pool``: what
    ``new_pool`` takes beside the interpreter."""

    workload: Workload
    name: str
    plan: "Plan"
    pool: Mapping[str, Any]
    silent: bool
    folder: Path
    tuned: list["TunedProblem"] = field(default_factory=list)
    invalid: list[InvalidProblem] = field(default_factory=list)

    def run(
        self, interpreters: Mapping[str, Workload], database: str | None, *, as_json: bool
    ) -> NoReturn:
        """Ends the process."""
        from autotune.cli.observer import say_interrupted
        from autotune.cli.workload_report import print_workload

        self.invalid += self.workload.invalid
        began = time.monotonic()
        with open_database(database, create=True) as store:
            for left, (python, some) in zip(
                range(len(interpreters), 0, -1), interpreters.items(), strict=True
            ):
                plan = self._plan(python, time.monotonic() - began, left)
                with new_pool(**self.pool, python=python) as compilers:
                    named = compiles_with(compilers, python, self.pool["ray"])
                    self._under(compilers, store, some, plan, named)
                    self._keep(store)
                    if any(one.published is None for one in self.tuned):
                        say_interrupted([one.result for one in self.tuned], str(store))
            place = str(store)
        undeclared = self.workload.undeclared
        print_workload(self.tuned, self.invalid, undeclared, place, as_json=as_json)
        failed = self.invalid or any(
            one.published and not one.published.record for one in self.tuned
        )
        sys.exit(1 if failed else 0)

    def _keep(self, store: Any) -> None:
        from autotune.cli.workload_report import tuned_workload

        if self.name and (self.tuned or self.invalid):
            undeclared = self.workload.undeclared
            store.workloads.save(tuned_workload(self.name, self.tuned, self.invalid, undeclared))

    def _plan(self, python: str, spent_s: float, left: int) -> "Plan":
        """With its part of the time that is left."""
        plan, limits = self.plan, self.plan.limits
        if limits.timeout_s is not None:
            limits = replace(limits, timeout_s=max(0.0, (limits.timeout_s - spent_s) / left))
        is_farm = self.pool["ray"] is not None
        timing = replace(plan.timing, python=python) if plan.timing and not is_farm else None
        return replace(plan, limits=limits, timing=timing)

    def _under(
        self, compilers: "Compilers", store: Any, some: Workload, plan: "Plan", python: str
    ) -> None:
        from autotune.cli.observer import ReportingObserver
        from autotune.cli.workload_progress import workload_progress
        from autotune.cli.workload_report import TunedProblem
        from autotune.publishing.tuning import TuningTask, tune_all
        from autotune.publishing.whole_model import explore_all, find_problems

        began = time.monotonic()
        problems, invalid = find_problems(compilers, some.problems, some.chips, self.folder)
        tasks, chosen, watchers = [], [], []
        with workload_progress(silent=self.silent, total=len(problems)) as progress:
            for found in explore_all(compilers, problems, progress.tracing):
                if isinstance(found, InvalidProblem):
                    invalid.append(found)
                    continue
                one, space, today = found
                watcher = ReportingObserver(
                    progress.of(one), store.searches, one.subject.key, _asked(one, python)
                )
                chosen.append(one)
                watchers.append(watcher)
                tasks.append(
                    TuningTask(
                        subject=one.subject,
                        space=space,
                        watcher=watcher,
                        weight=one.weight,
                        start_from=today,
                    )
                )
            for refused in invalid:
                progress.announce(str(refused))
            timeout_s = plan.limits.timeout_s
            if timeout_s is not None:
                left_s = max(0.0, timeout_s - (time.monotonic() - began))
                plan = replace(plan, limits=replace(plan.limits, timeout_s=left_s))
            of_key = {watcher.key: watcher for watcher in watchers}

            def published(result: "SearchResult", found: "Publication") -> None:
                progress.published(result.subject, found)
                of_key[result.subject.key].end(result.stopped_by)

            done = tune_all(compilers, store, tasks, plan, published)
            for watcher, (_, publication) in zip(watchers, done, strict=True):
                if publication is None:
                    watcher.end()
        self.invalid += invalid
        self.tuned += [
            TunedProblem(problem=one, result=result, published=published)
            for one, (result, published) in zip(chosen, done, strict=True)
        ]


def _asked(one: "ModelProblem", python: str) -> str:
    subject = one.subject
    problem = one.asked.args or subject.problem
    return asked(subject.ref, subject.spec.name, problem, subject.chip.chip, python)
