"""``autotune check``: what an upgrade or another chip does to what is tuned."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from autotune.cli import shared
from autotune.cli.problems import problem_options
from autotune.domain.arguments import ProblemWords
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.job import DEFAULT_TRIALS
from autotune.domain.key import parse_chip
from autotune.wording.output import echo

_POOL = ("candidate_memory", "candidate_timeout", "compilers", "flags")
_FOLLOWED = ("workload", "retune", "xla")  # what is not for --against


@click.command()
@click.argument("kernels", nargs=-1, metavar="[KERNEL]...")
@shared.repeated_option(
    "--jax",
    "releases",
    metavar="VERSION",
    help="Check against this JAX, of an environment of `autotune env`; may be given several times.",
)
@shared.repeated_option(
    "--python",
    "interpreters",
    metavar="INTERPRETER",
    help="Check against the JAX of this interpreter; may be given several times.",
)
@click.option(
    "--from", "made_with", metavar="jax=VERSION", help="Only records made with this version."
)
@shared.repeated_option(
    "--chip",
    "chips",
    help="Check on this TPU generation, not on the record's own; may be given several times.",
)
@click.option(
    "--bundle",
    type=click.Path(),
    metavar="FILE|URL",
    help="Check the records of this file or service, not those of the database.",
)
@click.option(
    "--workload",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Only the problems of this workload, as `autotune tune` takes it.",
)
@shared.flag_option(
    "--verify",
    help="Run the gate on what still holds, and publish it for the new toolchain; with --against "
    "on both sources.",
)
@shared.flag_option("--retune", help="Search what is broken, slower or needs a limit.")
@shared.default_option(
    "--trials",
    default=DEFAULT_TRIALS,
    type=click.IntRange(min=1),
    help="Of each search of --retune.",
)
@shared.flag_option("--xla", help="Ask also what plain XLA takes there: in --json.")
@click.option(
    "--against",
    metavar="REVISION|BUNDLE|URL",
    help="Compare the source of the working tree with this revision of it, or with the records of "
    "this file or service.",
)
@partial(problem_options, several=True)
@click.option(
    "--fail-on",
    "fails",
    metavar="slower:5%,broken,vmem:10%",
    help="What exit code 1 is for, beside a wrong result; default: all that is broken, needs a "
    "limit, is slower or loses to the default.",
)
@shared.output_option("--markdown", help="Also write a table for people.")
@shared.output_option("--junit", help="Also write JUnit XML.")
@shared.ray_option
@shared.pool_options
@shared.database_and_json
def check(
    releases: tuple[str, ...],
    interpreters: tuple[str, ...],
    made_with: str | None,
    chips: tuple[str, ...],
    fails: str | None,
    markdown: Path | None,
    junit: Path | None,
    as_json: bool,
    words: Sequence[ProblemWords],
    ray: str | None,
    **asked: Any,
) -> None:
    """Check what is published against other versions of JAX, or on other chips, without a TPU.

    The winner and the default of each record are compiled there. KERNEL is a name, or
    path/to/file.py:NAME; all that are published without one. Exit code 0: all is usable as it is;
    1: something is broken, needs a limit or is slower; 3: something was not checked. What was
    checked is kept: the same command goes on.

    With --against: what a change of the source does to the kernels of this working tree; of the
    problems that are named, or have records.
    """
    from autotune.cli.checks import CheckQuestion, find_interpreters
    from autotune.cli.reports import print_checks, write_junit, write_markdown
    from autotune.publishing.checking.fail_on import parse_fail_on
    from autotune.publishing.checking.selection import parse_version_filter

    fail_on = parse_fail_on(fails)
    named = [each for each in words if each]
    if asked["against"] is None and named:
        raise InvalidInputError(
            "--shape, --args, --dtype and --option are for --against: records have their problems"
        )
    if asked["against"] is not None:
        for name in filter(asked.__getitem__, _FOLLOWED):
            raise InvalidInputError(
                f"--{name} is for what is published: --against compares sources"
            )
    pool = {name: asked.pop(name) for name in _POOL} | {"ray": ray}
    question = CheckQuestion(
        chips=[parse_chip(name) for name in chips],
        made_with=parse_version_filter(made_with) if made_with else None,
        words=named,
        **asked,
    )
    try:
        pythons = find_interpreters(releases, interpreters, ray)
        checks = fail_on.judged(question.ask(pythons, pool))
    except KeyboardInterrupt:
        echo("interrupted: what was checked is kept, the same command goes on", err=True)
        raise
    print_checks(checks, as_json=as_json)
    if markdown:
        write_markdown(str(markdown), checks)
    if junit:
        write_junit(str(junit), checks, fail_on)
    if question.workload and not as_json and ray is None:
        try:
            for line in question.step_lines(pythons, checks, pool):
                echo(line)
        except AutotuneError as error:
            echo(f"the step has no time: {error}", err=True)
    sys.exit(fail_on.exit_code(checks))
