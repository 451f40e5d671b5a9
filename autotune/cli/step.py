"""``autotune step``: the time of a whole step of a model, and which chip it is best on."""

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

from autotune.cli import shared
from autotune.cli.duration import Duration
from autotune.declaring.calls.text import with_contents
from autotune.domain.compilers import CompileStep
from autotune.domain.errors import AutotuneError, CompilerUnavailableError, InvalidInputError
from autotune.domain.key import Chip, KernelRef, parse_chip
from autotune.domain.step import Step, slice_bounds
from autotune.domain.workload import Workload, load_workload
from autotune.measuring.attached import attached_chip
from autotune.wording.output import echo

_WORKLOAD_BUDGET_S = 60.0  # of each of the two compiles of a workload's step

workload_and_args = shared.together(
    click.option(
        "--args",
        "call",
        default="",
        metavar="x=bf16[8,128],params=PARAMS…",
        help="How it is called: arrays, constants, and names of the file for anything else, such "
        "as a tree of jax.ShapeDtypeStruct.",
    ),
    click.option(
        "--workload",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="In place of a function: that which this file names, with its arguments, topology and "
        "chips.",
    ),
)


@click.command()
@click.argument("function", required=False)
@workload_and_args
@shared.repeated_option("--chip", "chips", help="May be given several times: side by side.")
@click.option(
    "--topology",
    metavar="2x4|2x2x1",
    default="",
    help="Chips along each axis of the slice that the step is sharded over. [default: one device]",
)
@click.option("--tokens", type=click.IntRange(min=1), help="Of a step, on all devices together.")
@click.option(
    "--prices",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file with a line `v5e = 1.2` for each chip, its price for an hour.",
)
@click.option(
    "--tuned",
    metavar="URL|DATABASE|BUNDLE",
    help="Before and after: also with the tuned configs of this source, as AUTOTUNE_SOURCE. Of a "
    "workload by default with those of your database.",
)
@shared.default_option(
    "--budget",
    type=Duration(),
    default="5m",
    help="Stop the compiler after this time (90s, 20m): what it has not compiled by then is timed "
    "by its FLOPs and bytes.",
)
@shared.repeated_option(
    "--jax",
    "releases",
    metavar="VERSION",
    help="Compile with this JAX, of an environment of `autotune env`. Given several times, the "
    "first is before, and what each other one changes is said.",
)
@shared.repeated_option(
    "--python",
    "interpreters",
    metavar="INTERPRETER",
    help="The same with the JAX of this interpreter (3.11+).",
)
@click.option(
    "--bisect",
    metavar="OPERATION|LINE",
    help="Of what became slower: between which releases of libtpu. Needs two --jax and one --chip.",
)
@shared.pool_options
@shared.json_option
def step(
    function: str | None,
    workload: Path | None,
    call: str,
    chips: tuple[str, ...],
    topology: str,
    tokens: int | None,
    prices: Path | None,
    tuned: str | None,
    budget: float,
    releases: tuple[str, ...],
    interpreters: tuple[str, ...],
    bisect: str | None,
    as_json: bool,
    **pool: Any,
) -> None:
    """Say what a step of FUNCTION takes, path/to/model.py:NAME, without a TPU.

    It is compiled as the model jits it, with its shardings and what it donates. The times of its
    operations are remembered: a run that was cut short, or a change, compiles what is new.
    Exit code 1 when it does not compile for one of the chips.
    """
    from autotune.cli.bisect import bisect as bisected
    from autotune.cli.checks import find_interpreters
    from autotune.wording.step import print_chips, print_step, step_data

    pythons = list(dict.fromkeys(find_interpreters(releases, interpreters, None)))
    question = step_question(function, workload, call, chips, topology)
    question = replace(question, budget_s=budget, tokens=tokens or 0)
    function = function or str(question.ref)
    if workload is not None and tuned is None and len(pythons) == 1:
        tuned = _searched()
    ways = _ways(pythons, tuned)
    if bisect and (len(pythons) != 2 or len(question.chips) != 1):
        raise InvalidInputError("--bisect is between two --jax, on one --chip")
    costs = _prices(prices)
    steps, before, failed = question.ask(ways, silent=as_json, **pool)
    if not as_json:
        for each in steps:
            print_step(function, each, costs, before.get(each.chip))
        if len(steps) > 1:
            print_chips(steps, costs)
        for name, reason in failed.items():
            echo(f"{function} on {name}: {reason}", err=True)
    cause = None
    try:
        if bisect and steps and before:
            cause = bisected(question, before[steps[0].chip], steps[0], bisect, ways[0], **pool)
    except AutotuneError as error:
        if not as_json:
            raise
        failed["bisect"] = str(error)
    if as_json:
        data = [step_data(each, costs, before.get(each.chip)) for each in steps]
        shared.print_json({"function": function, "steps": data, "failed": failed, "bisect": cause})
    elif cause:
        echo(cause)
    raise SystemExit(2 if "bisect" in failed else 1 if failed else 0)


def _ways(pythons: Sequence[str], tuned: str | None) -> list[tuple[str, str]]:
    """What is compared: an interpreter, and the source of its tuned configs. Raises
    ``InvalidInputError``: the source is none, or there are several of both."""
    from autotune.answering.sources import ENVIRONMENT, open_source

    if tuned is None:
        return list(product(pythons, [os.environ.get(ENVIRONMENT, "")]))
    open_source(tuned)
    if len(pythons) > 1:
        raise InvalidInputError("--tuned compares under one JAX: give one --jax or --python")
    return list(product(pythons, ["", tuned]))


def step_question(
    function: str | None, workload: Path | None, call: str, chips: Sequence[str], topology: str
) -> "StepQuestion":
    """Of the function, or of what a workload names. ``chips``: those that are named; default: the
    one that is attached. Raises ``InvalidInputError``."""
    from autotune.declaring.discovery import find_kernel

    named = [parse_chip(chip) for chip in chips]
    if (function is None) == (workload is None):
        raise InvalidInputError("give a FUNCTION, path/to/model.py:NAME, or a --workload")
    if workload is None:
        ref = replace(find_kernel(function or ""), call=with_contents(call))
        question = StepQuestion(ref=ref, chips=[], bounds=(), budget_s=0.0)
    elif call:
        raise InvalidInputError("a --workload has the arguments of its step: leave out --args")
    else:
        question = _of_workload(workload)
    chosen = named or question.chips or [attached_chip()]
    return replace(question, chips=chosen, bounds=slice_bounds(topology) or question.bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepQuestion:
    """What a function takes on each chip."""

    ref: KernelRef
    chips: Sequence[Chip]
    bounds: tuple[int, ...]
    budget_s: float
    tokens: int = 0

    def ask(
        self, ways: Sequence[tuple[str, str]], *, silent: bool, **pool: Any
    ) -> tuple[list[Step], dict[str, Step], dict[str, str]]:
        """In each of the ``ways``, an interpreter and a source of tuned configs: the steps, by chip
        the first of several, which they are compared with, and what failed why. ``pool``: what
        ``new_pool`` takes beside the interpreter."""
        from autotune.answering.sources import ENVIRONMENT
        from autotune.publishing.step import LIMIT_AFTER_S, timed_step
        from autotune.wording.outcome import reason_of
        from autotune.wording.step import StepProgress

        limit_s = max(pool["candidate_timeout"], self.budget_s + LIMIT_AFTER_S)
        pool |= {"compilers": 1, "candidate_timeout": limit_s}
        steps, before, failed = list[Step](), dict[str, Step](), dict[str, str]()
        for chip, (python, source) in product(dict.fromkeys(self.chips), ways):
            question = CompileStep(
                ref=self.ref, chip=chip, bounds=self.bounds, budget_s=self.budget_s
            )
            where = chip.value if len(ways) == 1 else f"{chip} with {python}"
            # A compiler of its own: what a module makes when it is imported is for one slice.
            with (
                patch.dict(os.environ, {ENVIRONMENT: source}),
                shared.new_pool(**pool, python=python) as compiler,
                StepProgress(silent=silent) as progress,
            ):
                try:
                    timed = timed_step(compiler, question, self.tokens, progress.hear)
                except CompilerUnavailableError as error:
                    failed[where] = str(error)
                    continue
            if not isinstance(timed, Step):
                failed[where] = reason_of(timed)
            elif (python, source) == ways[0] != ways[-1]:
                before[chip.value] = timed
            else:
                steps.append(timed)
        return steps, before, failed

    def pairs(
        self, ways: Sequence[tuple[str, str]], *, silent: bool, **pool: Any
    ) -> list[tuple[Step, Step]]:
        """Before and after, in the first of the ways and each other. Says what failed."""
        try:
            steps, before, failed = self.ask(ways, silent=silent, **pool)
        except AutotuneError as error:  # what was tuned is told all the same
            steps, before, failed = [], {}, {"any chip": str(error)}
        for where, why in failed.items():
            echo(f"the step has no time on {where}: {why}", err=True)
        both = [(before[step.chip], step) for step in steps if step.chip in before]
        return [(old, new) for old, new in both if old.time_us and new.time_us]


def step_of(workload: Workload, folder: Path, chips: Sequence[Chip] = ()) -> StepQuestion | None:
    """Of the function that a workload names, if it names one. Raises ``InvalidInputError``."""
    from autotune.declaring.discovery import find_kernel

    if not workload.step:
        return None
    ref = find_kernel(str(folder / workload.step))
    return StepQuestion(
        ref=replace(ref, call=with_contents(workload.step_args)),
        chips=chips,
        bounds=slice_bounds(workload.topology),
        budget_s=_WORKLOAD_BUDGET_S,
    )


def _of_workload(file: Path) -> StepQuestion:
    workload = load_workload(file)
    question = step_of(workload, file.parent, [parse_chip(chip) for chip in workload.chips])
    if question is None:
        raise InvalidInputError(
            f'{file} names no function of a step: give it a line `step = "model.py:train_step"`'
        )
    return question


def _searched() -> str | None:
    """Where `autotune tune` has put its configs, if it has."""
    from autotune.answering.sources import open_source
    from autotune_db.url import parse_database

    place = parse_database().full_url
    try:
        open_source(place)
    except AutotuneError:
        return None
    return place


def _prices(file: Path | None) -> dict[Chip, float]:
    if file is None:
        return {}
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{file} cannot be read: {error}") from error
    for name, price in given.items():
        if not isinstance(price, int | float) or isinstance(price, bool) or price < 0:
            raise InvalidInputError(
                f"{file}: {name} = {price!r} is no price of an hour: write {name} = 1.2"
            )
    return {parse_chip(name): float(price) for name, price in given.items()}
