"""``autotune doctor`` and ``autotune completion``."""

import sys
from collections.abc import Iterator
from dataclasses import asdict

import click

from autotune.cli.diagnosis import (
    Condition,
    Finding,
    attached,
    chips,
    database,
    hooks,
    interpreters,
    packages,
    service,
)
from autotune.cli.options import database_and_json, interpreter_options, print_json
from autotune.wording.output import echo


@click.command()
@click.option("--url", default=None, metavar="URL", help="Look at this service too.")
@click.option("--quick", is_flag=True, help="Compile nothing.")
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
            _print(finding)
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
    yield from hooks()
    yield attached()
    yield database(db)
    if url is not None:
        yield service(url)


def _print(finding: Finding) -> None:
    echo(f"{finding.condition:<4} {finding.subject:<10} {finding.says}")
    if finding.remedy:
        echo(f"{'':<15} {finding.remedy}")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete our commands and options.

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
