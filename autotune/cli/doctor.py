"""``autotune doctor`` and ``autotune completion``.

Each look gives findings and raises nothing.
"""

import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError

import click

from autotune.cli.shared import database_and_json, flag_option, interpreter_options, print_json
from autotune.compiling.environments.environment import (
    CannotCompile,
    environments,
    environments_folder,
    probe,
    releases,
)
from autotune.compiling.environments.packages import pip_install, unmet
from autotune.domain.compilers import CompileConfig, DescribeKernel, ListChoices
from autotune.domain.errors import AutotuneError, StoreError
from autotune.domain.key import Chip
from autotune.domain.version import VERSION, installed_version
from autotune.tables.hooks import (
    ENVIRONMENT,
    PACKAGES,
    named_in_environment,
    unknown_packages,
    untouched,
)
from autotune.wording.outcome import reason_of
from autotune.wording.output import echo
from autotune.wording.units import counted

EXTRAS = {
    "store": ("for a database", "sqlalchemy"),
    "search": ("to search", "optuna"),
    "serve": ("to run a service", "fastapi"),
    "postgres": ("for PostgreSQL", "psycopg"),
}
"""What each is for, and the package by which somebody has wanted it."""

_TIMEOUT_S = 10.0
_SIZE = "1048576"


class Condition(StrEnum):
    """*Not there*: nothing is wrong, and something cannot be done."""

    GOOD = "ok"
    NOT_THERE = "-"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """``remedy``: what to do, empty where nothing is wrong."""

    condition: Condition
    subject: str
    says: str
    remedy: str = ""


good, not_there, bad = (partial(Finding, condition) for condition in Condition)


def packages() -> Iterator[Finding]:
    about = f"pallas-autotune {VERSION}, Python {platform.python_version()}"
    try:
        lacks = unmet()
    except PackageNotFoundError:
        yield bad("package", "not installed", "pip install -e . in the repository")
        return
    if lacks:
        remedy = "pip install pallas-autotune"
        yield bad("package", f"{about}, lacks {', '.join(lacks)}", remedy)
    else:
        yield good("package", about)
    if foreign := installed_version("autotune"):
        says = f"autotune {foreign} is another package, and has the same import name"
        remedy = f"{sys.executable} -m pip uninstall autotune, then install pallas-autotune again"
        yield bad("autotune", says, remedy)
    for extra, (purpose, sign) in EXTRAS.items():
        yield _extra(extra, purpose, is_wanted=installed_version(sign) is not None)


def _extra(extra: str, purpose: str, *, is_wanted: bool) -> Finding:
    lacks = unmet(extra)
    if not lacks:
        return good(extra, f"all that is needed {purpose}")
    return Finding(
        subject=extra,
        condition=Condition.BAD if is_wanted else Condition.NOT_THERE,
        says=f"lacks {', '.join(lacks)}" if is_wanted else f"not installed: needed {purpose}",
        remedy=f"{sys.executable} -m {pip_install(extra)}",
    )


def interpreters(python: str) -> Iterator[Finding]:
    made = {
        environment.python: f"jax {environment.name}"
        for environment in environments(environments_folder())
    }
    for path in dict.fromkeys([python, *made]):
        yield _interpreter(path, made.get(path, "compiler"))


def _interpreter(python: str, subject: str) -> Finding:
    probed = probe(python)
    if not isinstance(probed, CannotCompile):
        return good(subject, f"{probed.toolchain}, Python {probed.python_version} ({python})")
    if probed.lacks in ("jax", "jaxlib"):
        return not_there(
            subject,
            f"{python} has no JAX: it cannot compile",
            f"{python} -m pip install 'jax[tpu]', or autotune env create jax==VERSION",
        )
    if probed.lacks:
        return bad(
            subject,
            f"{python} lacks {probed.lacks}, which its JAX forgot to ask for",
            f"{python} -m pip install {probed.lacks}",
        )
    says = f"{python} cannot import JAX: {probed.message}"
    remedy = "install jax[tpu] there again, with a libtpu of the same release"
    return bad(subject, says, remedy)


def chips(python: str) -> Iterator[Finding]:
    from autotune.compiling.pool import CompilerPool
    from autotune.declaring.discovery import find_kernel
    from autotune.estimating.space import default_config

    try:
        ref = find_kernel("vector_add")
        with CompilerPool(1, python=python) as pool:
            problem = pool.ask(DescribeKernel(ref=ref)).problems.parse(_SIZE, None, ())
            for chip in Chip:
                config = default_config(pool.ask(ListChoices(ref=ref, problem=problem, chip=chip)))
                answer = pool.ask(
                    CompileConfig(ref=ref, problem=problem, config=config, chip=chip)
                ).answer
                remedy = "another JAX may: autotune env create jax==VERSION, then --jax VERSION"
                if isinstance(answer, tuple):
                    yield good(chip, "compiles")
                else:
                    yield bad(chip, reason_of(answer), remedy)
    except AutotuneError as error:
        yield bad("chips", str(error), "see the compilers above; autotune chips lists the names")


def hooks(python: str) -> Iterator[Finding]:
    """What ``autotune.install`` would patch of what an interpreter has."""
    named = named_in_environment()
    if unknown := unknown_packages(named):
        remedy = f"choose among {', '.join(PACKAGES)}"
        yield bad("install", f"{ENVIRONMENT} names {unknown}: unknown here", remedy)
    installed = releases(python, PACKAGES) or {}
    for package in PACKAGES.values():
        by = ENVIRONMENT if package.name in named else "autotune.install"
        takes = f"{len(package.hooks())} lookups of {package.name} take tuned blocks by {by}"
        left_alone = untouched(package, installed.get(package.name))
        yield not_there("install", left_alone) if left_alone else good("install", takes)


def attached() -> Finding:
    from autotune.measuring.attached import attached_chips

    devices = attached_chips()
    if devices:
        return good("TPU", f"{len(devices)} x {devices[0]}: finalists are measured")
    return not_there("TPU", "none attached: times are estimates")


def database(url: str | None) -> Finding:
    if unmet("store"):
        return not_there("database", "cannot be looked at without the extra store")
    from autotune_db import open_store
    from autotune_db.url import parse_database

    try:
        place = parse_database(url)
        if place.path is not None and not place.path.exists():
            says = f"there is none at {place.path} yet: the first search makes it"
            return not_there("database", says)
        with open_store(url, create=False) as store:
            number = next((snapshot.number for snapshot in store.snapshots(1)), 0)
            return good("database", f"{store}, snapshot {number}")
    except StoreError as error:
        return bad(
            "database",
            str(error),
            "name another with --db, or bring its tables up to date: autotune db upgrade",
        )


def service(url: str) -> Finding:
    from autotune.answering.http import Remote

    try:
        state = json.loads(Remote(url, _TIMEOUT_S).call("GET", "/readyz"))
        records = counted(state["records"], "record")
        says = f"{url} answers from snapshot {state['snapshot']}, {records}"
        return good("service", says)
    except (AutotuneError, OSError, ValueError, KeyError, TypeError) as error:
        remedy = "is the address right, and does autotune serve run there?"
        return bad("service", f"{url}: {error}", remedy)


@click.command()
@click.option("--url", metavar="URL", help="Look at this service too.")
@flag_option("--quick", help="Compile nothing.")
@interpreter_options
@database_and_json
def doctor(url: str | None, quick: bool, python: str, database: str | None, as_json: bool) -> None:
    """Look at what is installed, at compilers and chips, the database and a service.

    Says what to do about what is wrong. Exit code 1: something does not work.
    """
    findings = []
    for finding in _look(url, quick, python, database):
        findings.append(finding)
        if not as_json:
            echo(f"{finding.condition:<4} {finding.subject:<10} {finding.says}")
            if finding.remedy:
                echo(f"{'':<15} {finding.remedy}")
    if as_json:
        print_json([asdict(finding) for finding in findings])
    if any(finding.condition == Condition.BAD for finding in findings):
        sys.exit(1)


def _look(url: str | None, quick: bool, python: str, db: str | None) -> Iterator[Finding]:
    yield from packages()
    compilers = list(interpreters(python))
    yield from compilers
    if compilers[0].condition == Condition.GOOD and not quick:
        yield from chips(python)
    yield from hooks(python)
    yield attached()
    yield database(db)
    if url is not None:
        yield service(url)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands, options, kernels, chips and environments.

    \b
    bash: autotune completion bash > ~/.local/share/bash-completion/completions/autotune
    zsh:  autotune completion zsh > ~/.zfunc/_autotune, with fpath+=~/.zfunc before compinit
    fish: autotune completion fish > ~/.config/fish/completions/autotune.fish
    """
    from click.shell_completion import get_completion_class

    from autotune.cli.main import cli

    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(cli, {}, "autotune", "_AUTOTUNE_COMPLETE").source())
