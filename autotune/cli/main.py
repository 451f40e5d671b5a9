"""The ``autotune`` command: finds the subcommand, and turns errors into one sentence."""

import atexit
import errno
import gc
import importlib
import io
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from autotune.domain.errors import AutotuneError
from autotune.domain.version import VERSION
from autotune.wording.output import echo

_GROUPS = {
    "Tune": {
        "search": ("autotune.cli.tune:search", "Find the best legal config for a problem."),
        "tune": ("autotune.cli.tune:tune", "Tune all problems of a model, on all its chips."),
        "collect": ("autotune.cli.collect:collect", "Find the kernels that a model calls."),
        "estimate": ("autotune.cli.estimate:estimate", "Estimate single configs, side by side."),
        "step": ("autotune.cli.step:step", "Say what a step of a whole model takes, and where."),
    },
    "Look": {
        "history": ("autotune.cli.history:history", "List what has been searched."),
        "profile": ("autotune.cli.profile:profile", "Say which lines a kernel's time goes to."),
        "advise": ("autotune.cli.advise:advise", "Say what to change in a kernel's source."),
        "explain": ("autotune.cli.explain:explain", "Say where the time of a trial goes."),
        "lookup": ("autotune.cli.show:lookup", "Print the published config for a problem."),
        "show": ("autotune.cli.show:show", "Print one trial."),
        "kernels": ("autotune.cli.catalogue:kernels", "List the kernels that can be tuned."),
        "chips": ("autotune.cli.catalogue:chips", "List TPU generations and their names."),
        "misses": ("autotune.cli.misses:misses", "List what was asked for and is not published."),
        "log": ("autotune.cli.log:log", "Say who wrote what."),
    },
    "Check": {
        "check": (
            "autotune.cli.check:check",
            "Check what is published against another JAX or chip.",
        ),
        "calibrate": ("autotune.cli.calibrate:calibrate", "Compare estimates with measurements."),
        "audit": ("autotune.cli.audit:audit", "Say what a table of tuned configs is worth."),
    },
    "Share": {
        "export": ("autotune.cli.export:export", "Write the published records to a file."),
        "apply": ("autotune.cli.apply:apply", "Write records into the tables of a project."),
        "import": ("autotune.cli.audit:import_table", "Read a table of tuned configs."),
        "push": ("autotune.cli.push:push", "Send results to a service."),
        "rule": ("autotune.cli.rule:rule", "Make a rule for shapes that nobody tuned."),
    },
    "Serve": {
        "serve": ("autotune.cli.serve:serve", "Answer lookups over HTTP, take what is pushed."),
        "worker": ("autotune.cli.worker:worker", "Run the tuning jobs of a service."),
        "token": ("autotune.cli.token:token", "Make and revoke tokens for writing."),
        "snapshots": ("autotune.cli.snapshots:snapshots", "Roll back, pin, prune."),
    },
    "Set up": {
        "doctor": ("autotune.cli.doctor:doctor", "Say what does not work here, and what to do."),
        "env": ("autotune.cli.env:env", "Keep other versions of JAX to compile with."),
        "db": ("autotune.cli.database:db", "Look after the database."),
        "completion": ("autotune.cli.doctor:completion", "Complete commands in your shell."),
    },
}
_COMMANDS = {name: command for group in _GROUPS.values() for name, command in group.items()}
_FIRST = frozenset(  # what a first look at the help says in full
    {"search", "tune", "collect", "history", "explain", "lookup", "check", "export", "serve"}
    | {"worker", "doctor", "env"}
)
_PLAIN = {  # what click calls numbers and their ranges
    r"is not a valid integer( range)?": "is no whole number",
    r"is not a valid float( range)?": "is no number",
    r"is not in the range x>=(\S+)$": r"is not at least \1",
    r"is not in the range x>(\S+)$": r"is not more than \1",
    r"is not in the range (\S+)<=x<=(\S+)$": r"is not between \1 and \2",
}


_COMPLETED = frozenset({"kernel", "kernels", "chip", "chips", "jax", "releases", "version"})


def _known(parameter: str) -> Iterable[str]:
    from autotune.compiling.environments.environment import environments, environments_folder
    from autotune.declaring.discovery import installed_kernels
    from autotune.domain.key import Chip

    if parameter.startswith("kernel"):
        return installed_kernels()
    if parameter.startswith("chip"):
        return list(Chip)
    return [environment.name for environment in environments(environments_folder())]


class _KnownName(click.types.StringParamType):
    """Any text. A shell completes the names that are known here; a kernel may be in a file."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        known = param.name or ""
        names = [name for name in _known(known) if name.startswith(incomplete)]
        files = [CompletionItem(incomplete, type="file")] if known.startswith("kernel") else []
        return [*map(CompletionItem, names)] or files


def _completing(command: click.Command) -> click.Command:
    for inner in getattr(command, "commands", {}).values():
        _completing(inner)
    for param in command.params:
        if param.name in _COMPLETED and param.type is click.STRING:
            param.type = _KnownName()
    return command


class LazyGroup(click.Group):
    """Imports a command's module only when it runs: ``--help`` and ``lookup`` stay light."""

    # ruff: noqa: ARG002 (click's signatures)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            if not name.startswith("-"):
                raise click.NoSuchCommand(name, possibilities=_COMMANDS, ctx=ctx)
            return None
        module, _, attribute = _COMMANDS[name][0].partition(":")
        return _completing(getattr(importlib.import_module(module), attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in _GROUPS.items():
            rows = [(name, text) for name, (_, text) in commands.items() if name in _FIRST]
            others = ", ".join(name for name in commands if name not in _FIRST)
            with formatter.section(title):
                formatter.write_dl([*rows, *([("and", others)] if others else [])])
        formatter.write_paragraph()
        formatter.write_text("Each says more with --help.")


JSON_VERSION = 1
"""Of all that ``--json`` prints: docs/reference/stability.md says what raises it."""


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        data = json.dumps({"version": VERSION, "json": JSON_VERSION})
        click.echo(data if context.params["as_json"] else f"autotune, version {VERSION}")
        context.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit; with --json, that of the JSON too.",
)
@click.option("--json", "as_json", is_flag=True, is_eager=True, hidden=True)
def cli(as_json: bool) -> None:
    """Tune the block shapes of JAX Pallas TPU kernels, on any Linux machine, with no TPU."""
    if as_json:
        raise click.UsageError("--json stands after the command, as in `autotune history --json`")


def main(args: list[str] | None = None) -> Any:
    """Entry point. Exit codes: 0 done, 1 nothing found or published, 2 wrong input or
    surroundings, 130 interrupted (Ctrl-C or SIGTERM), 141 nobody reads the output any longer."""
    if args is not None:
        _run(args)
    status: list[Any] = []
    atexit.register(_leave, status)  # before all others: it runs after them
    try:
        _run(sys.argv[1:])
    except SystemExit as ended:
        status.append(ended.code or 0)
        raise
    except BrokenPipeError:  # nobody reads what is refused
        sys.stdout = sys.stderr = io.StringIO()
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        _refuse(_what_failed(error), sys.argv)


def _leave(status: list[Any]) -> None:
    """Ends the process at the end of its exit handlers. Python would take every module apart, which
    is a sixth of a short command."""
    with suppress(OSError, IndexError):  # Python says what is wrong with a pipe
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        os._exit(status[0])


def _run(given: list[str]) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _new_interrupt())
    # Threads of NumPy's that wait for each other spin: on two busy cores a proposal took 270 ms of
    # processor time, and 14 with one.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imports make many objects and no garbage: to look for some took a tenth of a short command.
    gc.set_threshold(200_000, 20, 20)
    output = sys.stdout
    if isinstance(output, io.TextIOWrapper):
        output.reconfigure(errors="replace")  # of what its encoding lacks
    try:
        sys.exit(cli.main(args=given, prog_name="autotune", standalone_mode=False))
    except SystemExit as ended:
        if sys.stdout is not output:  # click puts another there where nobody reads it
            ended.code = 128 + signal.SIGPIPE
        raise
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _refuse(_usage_text(error), given)
    except (click.Abort, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        goes_on = ": what was finished is kept, the same command goes on" * (given[:1] != ["serve"])
        echo(f"interrupted{goes_on}", err=True)
        sys.exit(130)
    except AutotuneError as error:
        from autotune.wording.outcome import error_text

        _refuse(error_text(error), given)
    except ModuleNotFoundError as error:
        _refuse(_what_to_install(error, given), given)
    except OSError as error:
        _refuse(_what_failed(error), given)


def _what_failed(error: OSError) -> str:
    """Raises the error again where it is no fault of the surroundings."""
    if error.errno == errno.ENOENT and error.filename is None:
        return "the current folder was deleted: change to another"
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        raise error
    sys.stdout = io.StringIO()  # what it could not take is not tried again
    return f"{error.filename or 'the output'} cannot be written: {error.strerror}"


def _new_interrupt() -> Callable[..., None]:
    """A handler of Ctrl-C. Two within two seconds are one: what the first has begun to clean up is
    not cut short."""
    last = -math.inf

    def interrupt(*_: object) -> None:
        nonlocal last
        if (now := time.monotonic()) - last > 2.0:
            last = now
            raise KeyboardInterrupt

    return interrupt


def _usage_text(error: click.ClickException) -> str:
    """What click refuses, in our style: one sentence, and where to read more."""
    near = getattr(error, "possibilities", None) or ()
    text = " ".join((error.message if near else error.format_message()).split())
    for click_words, plain in _PLAIN.items():
        text = re.sub(click_words, plain, text.rstrip("."))
    context = error.ctx if isinstance(error, click.UsageError) else None
    more = [f"did you mean {' or '.join(sorted(near))}?"] if near else []
    more += [f"see `{context.command_path} --help`"] if context else []
    return ": ".join([text[:1].lower() + text[1:], *filter(None, [" ".join(more)])])


def _refuse(reason: str, given: list[str]) -> NoReturn:
    if "--json" in given:
        click.echo(json.dumps({"error": reason}))
    echo(f"error: {reason}", err=True)
    sys.exit(2)


def _what_to_install(error: ModuleNotFoundError, given: list[str]) -> str:
    """Raises the error again where no extra of ours would mend it."""
    from autotune.compiling.environments.packages import extra_of, pip_install

    extra = extra_of((error.name or "").partition(".")[0])
    if extra is None:
        raise error
    compiles = {*_GROUPS["Tune"], *_GROUPS["Check"], "explain", "worker"}
    if extra == "store" and compiles.intersection(given[:1]):
        extra = "search"  # which has all of the other
    return f"{error.name} is not installed: {pip_install(extra)}"


if __name__ == "__main__":
    main()
