"""``autotune apply``: published records in the tables of a checked-out project."""

import sys
from pathlib import Path

import click

from autotune.cli import shared
from autotune.domain.errors import InvalidInputError
from autotune.tables.description import descriptions
from autotune.tables.export import FileChange, Refused, TableExport
from autotune.tables.formatting import formatted
from autotune.wording.output import echo
from autotune.wording.units import counted


@click.command()
@click.argument("repository", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print the patch, and change nothing.")
@click.option("--kernel", help="Only records of this kernel.")
@click.option("--chip", help="Only records of this TPU generation.")
@shared.accept_claimed_option
@shared.interpreter_options
@shared.database_and_json
def apply(
    repository: Path,
    dry_run: bool,
    kernel: str | None,
    chip: str | None,
    accept_claimed: bool,
    python: str,
    database: str | None,
    as_json: bool,
) -> None:
    """Write the newest records into the tables of REPOSITORY, a project that is checked out.

    Each table that is known here and lies in it is changed as `autotune export` changes one that
    is installed: in its own format, and looked up by its own library under --python. The project's
    formatter (yapf, black or ruff) goes over it, where it is installed. Exit code 1
    when there was nothing to change, or a record has no place in its table.
    """
    only = shared.chip_named(chip)
    with shared.open_database(database, create=False) as store:
        records = store.records(kernel, only, claimed=accept_claimed)
    changes: list[FileChange] = []
    refused: Refused = []
    tables = [table for table in descriptions() if any(repository.rglob(table.file))]
    if not tables:
        raise InvalidInputError(
            f"{repository} has no table that is known here: `autotune export` names the formats"
        )
    for table in tables:
        of_table = [record for record in records if table.takes(record.key.kernel)]
        export = TableExport(name=table.name, python=python, repository=repository)
        exported = export.of(of_table, exact=True)
        changes += [
            formatted(change, repository, python)
            for change in exported.changes
            if change.before != change.after
        ]
        refused += exported.refused
    files = [] if dry_run else [shared.check_writable(repository / c.file) for c in changes]
    for file, change in zip(files, changes, strict=False):
        shared.write_file(file, change.after)
    _say(changes, refused, dry_run, as_json)
    sys.exit(0 if changes and not refused else 1)


def _say(changes: list[FileChange], refused: Refused, dry_run: bool, as_json: bool) -> None:
    if as_json:
        left = [{"record": record, "reason": why} for record, why in refused]
        files = [
            {
                "file": c.file,
                "patch": c.patch,
                "formatter": c.formatter,
                "formatted": c.is_formatted,
            }
            for c in changes
        ]
        shared.print_json({"changed": files, "refused": left, "written": not dry_run})
        return
    for record, why in refused:
        echo(f"not written: {record}: {why}", err=True)
    for change in changes:
        if dry_run:
            click.echo(change.patch.encode(), nl=False)
        else:
            echo(f"{change.file} is changed")
        echo(f"{change.file}: {_of_formatter(change)}", err=True)
    echo(f"{counted(len(changes), 'table')} {'would be ' if dry_run else ''}changed", err=True)


def _of_formatter(change: FileChange) -> str:
    if change.is_formatted:
        return f"formatted by {change.formatter}"
    if not change.formatter:
        return "the project names no formatter that is known here"
    return f"{change.formatter} is not installed, or would have written other lines of it otherwise"
