"""``autotune env``: toolchains side by side."""

from dataclasses import asdict

import click

from autotune.cli.shared import json_option, print_list, print_result
from autotune.compiling.environments import environment
from autotune.domain.errors import UnknownNameError
from autotune.wording.output import echo


@click.group()
def env() -> None:
    """Make environments with other versions of JAX, for --jax of other commands.

    They are kept in $AUTOTUNE_ENVIRONMENTS, else in your data directory.
    """


@env.command()
@click.argument("release", metavar="jax==VERSION")
@click.argument("extra", nargs=-1, metavar="[PACKAGE]...")
@click.option("--python", metavar="INTERPRETER", help="Build on this one.")
@json_option
def create(release: str, extra: tuple[str, ...], python: str | None, as_json: bool) -> None:
    """Make an environment with this JAX, its libtpu, and what else is named.

    The same command again does nothing, or goes on where it was killed.
    """
    from autotune.compiling.environments.create import create_environment

    made = create_environment(
        environment.environments_folder(),
        release,
        extra=extra,
        python=python,
        announce=lambda text: echo(f"{text} …", err=True),
    )
    use = f"{made.toolchain} on Python {made.python_version}: use it with --jax {made.name}"
    print_result(asdict(made), use, as_json=as_json)


@env.command("list")
@json_option
def list_environments(as_json: bool) -> None:
    """List the environments."""

    def line(made: environment.Environment) -> str:
        beside = f"  with {', '.join(made.extra)}" if made.extra else ""
        base = f"  on {made.base}" if made.base else ""
        return f"{made.name:<10} {made.toolchain}, Python {made.python_version}{beside}{base}"

    none = "there is none yet: make one with `autotune env create jax==VERSION`"
    folder = environment.environments_folder()
    known = environment.environments(folder)
    print_list(known, asdict, lambda made: [line(made)], as_json=as_json, empty=none)
    for name in environment.unfinished(folder):
        echo(f"{name} is not finished: create it again, or `autotune env remove {name}`", err=True)


@env.command()
@click.argument("version")
def remove(version: str) -> None:
    """Delete an environment, also one that was not finished."""
    place, name = environment.environments_folder(), version.removeprefix("jax==")
    try:
        if name not in environment.unfinished(place):
            name = environment.find_environment(place, name).name
    except UnknownNameError as error:
        known = str(error).partition(": ")[0]
        raise UnknownNameError(f"{known}: see `autotune env list`") from error
    environment.remove(place, name)
    echo(f"removed jax {name}")
