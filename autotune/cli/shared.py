"""What several commands share: their options, the store, and the problem on the command line."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import click

from autotune.compiling.environments.environment import (
    checked,
    environments,
    environments_folder,
    find_environment,
)
from autotune.compiling.limits import CANDIDATE_LIMIT_S, CANDIDATE_MEMORY_GIB
from autotune.domain.arguments import NODES_JAX
from autotune.domain.compiler_options import canonical, given_options, process_options
from autotune.domain.errors import InvalidInputError
from autotune.domain.job import DEFAULT_TRIALS
from autotune.domain.key import Chip, Toolchain, parse_chip, process_toolchain
from autotune.wording.output import STARTING, echo
from autotune.wording.units import counted

if TYPE_CHECKING:
    from autotune.compiling.pool import PooledCompilers
    from autotune.publishing.publish import NewCompilers
    from autotune.publishing.task import Plan

_PASSWORD = re.compile(r"://[^/@\s]*:[^@\s]+@|[?&]password=", re.IGNORECASE)
_OTHERS = 2  # interpreters that may verify what the chosen one cannot run: the newest ones

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    def add(command: F) -> F:
        for option in options:
            command = option(command)
        return command

    return add


flag_option = partial(click.option, is_flag=True)
default_option = partial(click.option, show_default=True)
repeated_option = partial(click.option, multiple=True)

database_option = click.option(
    "--db",
    "database",
    metavar="URL|FILE",
    help="Database; default $AUTOTUNE_DATABASE_URL, or the URL in the file "
    "$AUTOTUNE_DATABASE_URL_FILE, else a file in your data directory.",
)
json_option = flag_option("--json", "as_json", help="Print JSON.")
database_and_json = together(json_option, database_option)
limit_option = default_option(
    "--limit",
    default=20,
    type=click.IntRange(1, 10_000),
    help="List so many at most.",
)
output_option = partial(  # of a file that is written
    click.option,
    metavar="FILE",
    type=click.Path(path_type=Path),
    callback=lambda _context, _option, file: file and check_writable(file),
)
accept_claimed_option = flag_option(
    "--accept-claimed",
    help="Also claims, where nothing is proven: pushed, and verified by who pushed it alone.",
)


def _takes_jax(command: F) -> F:
    """``--jax`` is another way to give ``--python``."""

    @wraps(command)
    def taking(*arguments: Any, jax: str | None, **options: Any) -> Any:
        if jax is not None:
            options["python"] = interpreter_of(jax, options.get("ray"))
        return command(*arguments, **options)

    return cast(F, taking)


interpreter_options = together(
    _takes_jax,
    click.option(
        "--jax", metavar="VERSION", help="Compile with the JAX of an environment of `autotune env`."
    ),
    click.option(
        "--python",
        default=sys.executable,
        metavar="INTERPRETER",
        help="Compile with the JAX of this interpreter (3.11+).",
    ),
)


def _takes_flags(command: F) -> F:
    """Options of the TPU compiler, those of this process among them, as ``flags``, the text of
    ``autotune.domain.compiler_options``."""

    @repeated_option(
        "--compiler-option",
        "flag",
        metavar="NAME=VALUE",
        help="Compile with this option of the TPU compiler, beside those in LIBTPU_INIT_ARGS and "
        "XLA_FLAGS; may be given several times.",
    )
    @click.option(
        "--compiler-options",
        "flag_file",
        metavar="FILE",
        help="Such options in a file, as in LIBTPU_INIT_ARGS or one a line.",
    )
    @wraps(command)
    def taking(*arguments: Any, flag: tuple[str, ...], flag_file: str | None, **more: Any) -> Any:
        return command(*arguments, flags=given_options(flag, flag_file, os.environ), **more)

    return cast(F, taking)


pool_options = together(  # what ``new_pool`` takes beside the interpreter
    _takes_flags,
    default_option(
        "--candidate-memory",
        default=CANDIDATE_MEMORY_GIB,
        metavar="GIB",
        type=click.FloatRange(min=1),
        help="Kill a compiler that holds more memory than this.",
    ),
    default_option(
        "--candidate-timeout",
        default=CANDIDATE_LIMIT_S,
        metavar="SECONDS",
        type=click.FloatRange(min=1),
        help="Kill a compiler that takes longer for one config, beside waiting for a processor.",
    ),
    default_option(
        "--compilers",
        envvar="AUTOTUNE_COMPILERS",
        show_envvar=True,
        default=2,
        type=click.IntRange(1, 64),
        help="Compiler processes side by side.",
    ),
)

compiler_options = together(interpreter_options, pool_options)  # what ``new_pool`` takes


ray_option = click.option(
    "--ray",
    metavar="auto|HOST:PORT",
    help="Compile on the nodes of this Ray cluster, with all its free slots, instead of "
    "--compilers; --jax is the version that its nodes have.",
)


def interpreter_of(jax: str, ray: str | None = None) -> str:
    """That of an environment of this machine; of a cluster the version stands for it."""
    given = click.get_current_context().get_parameter_source("python")
    if given is click.core.ParameterSource.COMMANDLINE:
        raise InvalidInputError("--jax and --python both name an interpreter: give one of them")
    if ray:
        return f"{NODES_JAX}{jax}"
    return checked(find_environment(environments_folder(), jax)).python


measuring_options = together(  # ``measure`` (whether), ``device`` and ``measure_seconds``
    default_option(
        "--measure-seconds",
        default=120.0,
        metavar="SECONDS",
        type=click.FloatRange(min=1),
        help="Stop timing after this time.",
    ),
    default_option(
        "--device",
        default=0,
        type=click.IntRange(min=0),
        help="Which of the attached devices is measured on.",
    ),
    default_option(
        "--measure",
        default="auto",
        type=click.Choice(["auto", "never"]),
        callback=lambda _context, _option, value: value == "auto",
        help="Time the finalists where a TPU of this generation is attached.",
    ),
)


def plan_options(command: F) -> F:
    """``--trials``, ``--full``, ``--seed``, ``--allow-unverified`` and those of measuring, as
    ``plan``; with ``timeout``, and ``method`` where a command has that."""

    @wraps(command)
    def planning(
        *arguments: Any,
        trials: int,
        timeout: float | None,
        full: bool,
        seed: int,
        allow_unverified: bool,
        measure: bool,
        device: int,
        measure_seconds: float,
        method: str = "gp",
        **options: Any,
    ) -> Any:
        from autotune.publishing.task import Plan, Timing
        from autotune.searching.subject import SearchLimits

        plan = Plan(
            limits=SearchLimits(trials=trials, timeout_s=timeout, full=full),
            seed=seed,
            method=method,
            allow_unverified=allow_unverified,
            timing=Timing(device=device, seconds=measure_seconds) if measure else None,
        )
        return command(*arguments, plan=plan, **options)

    given = together(
        measuring_options,
        flag_option(
            "--allow-unverified",
            help="Publish a winner that could not be verified; it carries the label.",
        ),
        default_option("--seed", default=0, help="Of what is chosen at random."),
        flag_option(
            "--full",
            help="Go on to --trials, even if nothing faster is predicted to be left. More trials "
            "than the default do so, too.",
        ),
        default_option(
            "--trials",
            default=DEFAULT_TRIALS,
            type=click.IntRange(min=1),
            help="Stop when a problem has this many trials on a chip, earlier runs included.",
        ),
    )
    return given(cast(F, planning))


def new_pool(
    compilers: int,
    candidate_timeout: float,
    candidate_memory: float,
    python: str,
    ray: str | None = None,
    flags: str = "",
    *,
    silent: bool = False,
) -> "PooledCompilers":
    """Compilers of this machine, none of which has started yet, or those of a cluster. ``silent``:
    somebody else says that they start."""
    from autotune.compiling.pool import CompilerPool

    if not (silent or click.get_current_context().params.get("as_json")):
        echo(STARTING, err=True)
    memory_bytes = round(candidate_memory * 2**30)
    if ray is not None:
        return _new_farm(ray, python, candidate_timeout, memory_bytes, flags)
    known = [environment.python for environment in environments(environments_folder())]
    return CompilerPool(
        compilers,
        python=python,
        limit_s=candidate_timeout,
        memory_bytes=memory_bytes,
        verify_with=[other for other in (*known, sys.executable) if other != python][:_OTHERS],
        options=flags,
    )


def one_compiler(python: str = sys.executable) -> "PooledCompilers":
    return new_pool(1, CANDIDATE_LIMIT_S, CANDIDATE_MEMORY_GIB, python)


def _new_farm(
    address: str, python: str, limit_s: float, memory_bytes: int, flags: str
) -> "PooledCompilers":
    from autotune.compiling.farm.pool import RayPool

    jax = python.removeprefix(NODES_JAX) if python.startswith(NODES_JAX) else None
    if jax is None and python != sys.executable:
        raise InvalidInputError("--python is of this machine: of a Ray cluster name the --jax")
    _refuse_password()
    return RayPool(
        address,
        jax=jax,
        limit_s=limit_s,
        memory_bytes=memory_bytes,
        announce=lambda line: echo(line, err=True),
        options=flags,
    )


def _refuse_password() -> None:
    if any(_PASSWORD.search(str(param)) for param in click.get_current_context().params.values()):
        raise InvalidInputError(
            "a Ray cluster shows this command line with its password to all: keep the URL of the "
            "database in a file that AUTOTUNE_DATABASE_URL_FILE names, instead of --db"
        )


def tuning_pool(
    plan: "Plan", *, python: str, ray: str | None = None, flags: str = "", **pool: Any
) -> "tuple[NewCompilers, Plan]":
    """What opens the compilers of ``new_pool``, and the plan for them: on a cluster nothing is
    timed, and the JAX of its nodes stands for the interpreter."""
    if ray is not None:
        _refuse_password()  # before the database is asked for
    in_cluster: dict[str, Any] = {"python": None, "timing": None}
    plan = replace(plan, options=flags, **({"python": python} if ray is None else in_cluster))
    return partial(new_pool, **pool, python=python, ray=ray, flags=flags, silent=True), plan


def say_interrupted(count: int, place: str, what: str = "trial") -> NoReturn:
    """From here on only cleaning up is left: another Ctrl-C must not cut it short."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    done = counted(count, what)
    echo(f"interrupted: {done} kept in {place}, the same command resumes", err=True)
    sys.exit(130)


def open_database(url: str | None, *, create: bool) -> Any:
    from autotune_db import open_store

    return open_store(url, create=create)


def parse_toolchain(text: str | None) -> Toolchain:
    """``jax=…,jaxlib=…,libtpu=…``, or the installed one."""
    if text is None:
        installed = process_toolchain()
        if installed is None:
            raise InvalidInputError(
                "no JAX with libtpu is installed here: give --toolchain "
                "jax=VERSION,jaxlib=VERSION,libtpu=VERSION"
            )
        return installed
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    if set(parts) != {"jax", "jaxlib", "libtpu"} or not all(parts.values()):
        raise InvalidInputError(
            f"toolchain {text!r} is not of the form jax=VERSION,jaxlib=VERSION,libtpu=VERSION"
        )
    return Toolchain(**parts, options=canonical(process_options(os.environ)))


def print_json(data: Any) -> None:
    click.echo(json.dumps(data, indent=2, default=str))


def print_result(data: Any, sentence: str, *, as_json: bool) -> None:
    """What a command did: the data with ``--json``, else the sentence."""
    if as_json:
        print_json(data)
    else:
        echo(sentence)


def print_list(
    rows: Iterable[T],
    data: Callable[[T], Any],
    lines: Callable[[T], Iterable[str]],
    *,
    as_json: bool,
    empty: str,
) -> None:
    """The data of all rows with ``--json``, else the lines of each, or the sentence ``empty``."""
    if as_json:
        print_json(list(map(data, rows)))
    else:
        for line in [line for row in rows for line in lines(row)] or [empty]:
            echo(line)


def check_writable(file: Path) -> Path:
    """It. Raises ``InvalidInputError`` before any time is spent."""
    place = file if file.exists() else file.resolve().parent
    if not (file.exists() or place.is_dir()):
        raise InvalidInputError(f"there is no folder {place} for {file.name}")
    if file.is_dir() or not os.access(place, os.W_OK):
        raise InvalidInputError(f"{file} is not a file that could be written to")
    return file


def write_file(file: Path, content: str | bytes) -> None:
    """A text, or all of these bytes or nothing. Raises ``InvalidInputError`` with the reason where
    it cannot be written."""
    try:
        if isinstance(content, bytes):
            from autotune.answering.bundle import write_whole

            write_whole(file, content)
        else:
            file.write_text(content, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be written: {error.strerror}") from error


def chip_named(name: str | None) -> Chip | None:
    """None where no chip is named: of all chips. Raises ``InvalidInputError``."""
    return None if name is None else parse_chip(name)
