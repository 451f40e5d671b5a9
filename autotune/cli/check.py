"""``autotune check``: what an upgrade or another chip does to what is tuned."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.table import Table
from rich.text import Text

from autotune.cli.options import (
    database_option,
    json_option,
    new_pool,
    open_database,
    pool_options,
    print_json,
)
from autotune.cli.output import echo
from autotune.cli.screen import screen
from autotune.domain.check import Check
from autotune.domain.chip import parse_chip
from autotune.domain.record_check import CheckVerdict
from autotune.domain.toolchain import Toolchain
from autotune.wording.checks import action, finding, place_line, subject_line

if TYPE_CHECKING:
    from autotune.domain.kernel_ref import KernelRef
    from autotune.domain.record import Record

_WIDTH = 160  # columns, where there is no terminal
_WRONG, _UNKNOWN = 1, 3  # exit codes


@click.command()
@click.argument("kernels", nargs=-1, metavar="[KERNEL]...")
@click.option(
    "--jax",
    "releases",
    multiple=True,
    metavar="VERSION",
    help="Check against this JAX, of an environment of `autotune env`; may be given several times.",
)
@click.option(
    "--python",
    "interpreters",
    multiple=True,
    metavar="INTERPRETER",
    help="Check against the JAX of this interpreter; may be given several times.",
)
@click.option(
    "--from",
    "made_with",
    default=None,
    metavar="jax=VERSION",
    help="Only records that were made with this version.",
)
@click.option(
    "--chip",
    "chips",
    multiple=True,
    help="Check on this TPU generation, not on the record's own; may be given several times.",
)
@click.option(
    "--bundle",
    default=None,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Check the records of this file, not those of the database.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Run the gate on what still holds, and publish it for the new toolchain.",
)
@click.option("--retune", is_flag=True, help="Search what is broken, slower or needs a limit.")
@click.option(
    "--trials",
    default=40,
    show_default=True,
    type=click.IntRange(min=1),
    help="Of each search of --retune.",
)
@click.option("--again", is_flag=True, help="Check also what was checked before.")
@pool_options
@database_option
@json_option
def check(
    kernels: tuple[str, ...],
    releases: tuple[str, ...],
    interpreters: tuple[str, ...],
    made_with: str | None,
    chips: tuple[str, ...],
    bundle: str | None,
    verify: bool,
    retune: bool,
    trials: int,
    again: bool,
    database: str | None,
    as_json: bool,
    **pool: Any,
) -> None:
    """Check what is published against other versions of JAX, or on other chips, without a TPU.

    The winner and the default of each record are compiled there. KERNEL is a name, or
    path/to/file.py:NAME; all that are published without one. Exit code 0: all is usable as it is;
    1: something is broken, needs a limit or is slower; 3: something was not checked. What was
    checked is kept: the same command goes on.
    """
    from autotune.checking.selection import parse_version_filter, selected

    wanted = [parse_chip(name) for name in chips]
    old = parse_version_filter(made_with) if made_with else None
    found: list[Check] = []
    with open_database(database, create=bundle is not None) as store:
        records = _records(store, bundle)
        for python in _pythons(releases, interpreters):
            with new_pool(**pool, python=python) as compilers, _interruptible():
                refs = _refs(compilers, kernels, records)
                some = selected(
                    records,
                    compilers.toolchain(),
                    kernels=list(refs) if kernels else (),
                    made_with=old,
                )
                checks = _checked(store, compilers, refs, some, wanted, again=again)
                if verify:
                    checks = _verified(store, compilers, refs, some, checks)
                if retune:
                    _retuned(store, compilers, refs, checks, trials)
                found += checks
    _print(found, as_json=as_json)
    sys.exit(_exit_code(found))


def _checked(
    store: Any,
    compilers: Any,
    refs: "dict[str, KernelRef]",
    records: "list[Record]",
    chips: Sequence[Any],
    *,
    again: bool,
) -> list[Check]:
    from autotune.checking.run import CheckRun

    count, total = 0, len(records) * max(1, len(chips))

    def say(check: Check) -> None:
        nonlocal count
        count += 1
        echo(f"{count}/{total} {check.verdict}: {subject_line(check)}", err=True)

    run = CheckRun(compilers=compilers, store=store, refs=refs, again=again)
    return run.run(records, chips, say)


def _verified(
    store: Any,
    compilers: Any,
    refs: "dict[str, KernelRef]",
    records: "list[Record]",
    checks: list[Check],
) -> list[Check]:
    from autotune.checking.follow_up import publish_all_checked

    def say(check: Check) -> None:
        echo(f"verifying {subject_line(check)}", err=True)

    return publish_all_checked(compilers, store, checks, records, refs, say)


def _retuned(
    store: Any, compilers: Any, refs: "dict[str, KernelRef]", checks: list[Check], trials: int
) -> None:
    from autotune.checking.follow_up import Retuner
    from autotune.cli.progress import TerminalObserver, terminal_observer
    from autotune.searching.loop import SearchLimits

    def watching(check: Check) -> TerminalObserver:
        echo(f"searching {subject_line(check)}", err=True)
        return terminal_observer(silent=False)

    limits = SearchLimits(trials=trials)
    retuner = Retuner(compilers=compilers, store=store, limits=limits, study_url=store.url)
    retuner.retune_each(checks, refs, watching, lambda line: echo(line, err=True))


def _records(store: Any, bundle: str | None) -> "list[Record]":
    if bundle is None:
        return list(store.records())
    from pathlib import Path

    from autotune.lookups.bundle import read_bundle

    return list(read_bundle(Path(bundle)).records)


def _pythons(releases: Sequence[str], interpreters: Sequence[str]) -> list[str]:
    """The interpreters to compile under; this one where none is named."""
    from autotune.environments.environment import environments_folder, find_environment

    own = [find_environment(environments_folder(), release).python for release in releases]
    return [*own, *interpreters] or [sys.executable]


def _refs(
    compilers: Any, kernels: Sequence[str], records: "Sequence[Record]"
) -> "dict[str, KernelRef]":
    """Where kernels are, by the name that their records have."""
    from autotune.catalogue.discovery import catalogue, find_kernel
    from autotune.domain.kernel_ref import KernelRef

    if kernels:
        refs = [find_kernel(name) for name in kernels]
        return {compilers.describe(ref).name: ref for ref in refs}
    published = {record.key.kernel for record in records}
    installed = catalogue()
    return {
        name: ref
        for name, ref in installed.items()
        if name in published and isinstance(ref, KernelRef)
    }


def _exit_code(found: Sequence[Check]) -> int:
    verdicts = {check.verdict for check in found}
    if any(verdict.wants_retuning for verdict in verdicts):
        return _WRONG
    return _UNKNOWN if CheckVerdict.NOT_CHECKED in verdicts else 0


@contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        echo("interrupted: what was checked is kept, the same command goes on", err=True)
        raise


def _print(found: list[Check], *, as_json: bool) -> None:
    if as_json:
        print_json([_data(check) for check in found])
    elif not found:
        echo("there is no record to check: all that is published is of this toolchain")
    else:
        if len({one.toolchain for one in found}) > 1:
            screen(_WIDTH).print(_matrix(found))
        _print_lines(found)
        echo(_counts(found))


def _data(check: Check) -> dict[str, Any]:
    from autotune.domain.codec import to_data

    return {**to_data(check), "finding": finding(check), "action": action(check)}


def _print_lines(found: Sequence[Check]) -> None:
    """One line for each, the worst first; under it what to do."""
    for one in found:
        echo(f"{one.verdict.value:<13}{subject_line(one)}: {finding(one)}")
        todo = action(one)
        if todo:
            echo(f"{'':<13}{todo}")


def _matrix(found: Sequence[Check]) -> Table:
    """Verdicts by record and toolchain."""
    columns = sorted({one.toolchain for one in found})
    rows: dict[str, dict[Toolchain, str]] = {}
    for one in found:
        rows.setdefault(place_line(one), {})[one.toolchain] = one.verdict.value
    table = Table("record", *(f"jax {one.jax}" for one in columns), box=box.SIMPLE_HEAD)
    for place in sorted(rows):
        table.add_row(*map(Text, [place, *(rows[place].get(column, "") for column in columns)]))
    return table


def _counts(found: Sequence[Check]) -> str:
    counts = {v: sum(check.verdict is v for check in found) for v in CheckVerdict}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
