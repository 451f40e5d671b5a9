"""``autotune apply``: published records in the tables of a checked-out project."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from autotune.cli import shared
from autotune.cli.step import step_question, workload_and_args
from autotune.cli.traced_again import TracedModel
from autotune.domain.errors import InvalidInputError
from autotune.domain.record import Record
from autotune.publishing.checking.selection import selected
from autotune.tables.description import Description, descriptions
from autotune.tables.export import FileChange, Refused, TableExport, packages_folder
from autotune.tables.formatting import formatted
from autotune.tables.table import Named
from autotune.wording.output import echo
from autotune.wording.units import counted


@click.command()
@click.argument("repository", type=click.Path(exists=True, file_okay=False, path_type=Path))
@shared.flag_option("--dry-run", help="Print the patch, and change nothing.")
@click.option(
    "--model",
    metavar="FILE.py:FUNCTION",
    help="Trace this model before and after, as `autotune collect` does.",
)
@workload_and_args
@click.option("--kernel", help="Only records of this kernel.")
@click.option("--chip", help="Only records of this TPU generation, which a model is traced for.")
@shared.accept_claimed_option
@shared.interpreter_options
@shared.database_and_json
def apply(
    repository: Path,
    dry_run: bool,
    model: str | None,
    workload: Path | None,
    call: str,
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
    formatter (yapf, black or ruff) goes over it, where it is installed. Of a model it is said which
    calls run other blocks then, and which of these records none runs. Exit code 1
    when there was nothing to change, a record has no place in its table, or the model cannot be
    traced.
    """
    repository, only = repository.resolve(), shared.chip_named(chip)
    asked = model or workload or call
    if asked and (model is None) == (workload is None):
        raise InvalidInputError("give --model FILE.py:FUNCTION, or a --workload")
    question = step_question(model, workload, call, [chip] if chip else [], "") if asked else None
    with shared.open_database(database, create=False) as store:
        records = selected(store.records(kernel, only, claimed=accept_claimed))
    tables = [(t, where) for t in descriptions() if (where := packages_folder(repository, t))]
    if not tables:
        raise InvalidInputError(
            f"{repository} has no table that is known here: `autotune export` names the formats"
        )
    changes, refused = list[FileChange](), Refused()
    rows = list[tuple[Description | None, Record]]()
    for table, _ in tables:
        export = TableExport(name=table.name, python=python, repository=repository)
        of_table = [record for record in records if table.takes(record.key.kernel)]
        exported = export.of(of_table, exact=True)
        changes += [
            formatted(change, repository, python)
            for change in exported.changes
            if change.before != change.after
        ]
        refused += exported.refused
        rows += [(table, record) for record in exported.records]
    takes = [table.takes for table, _ in tables]
    rows += [(None, r) for r in records if not any(take(r.key.kernel) for take in takes)]
    for change in () if dry_run else changes:
        shared.check_writable(repository / change.file)
    traced = None
    if question is not None:
        place = TracedModel(question, python, repository, [folder for _, folder in tables])
        traced = place.patch(changes, rows, dry_run=dry_run)
    for change in () if dry_run or traced else changes:
        shared.write_file(repository / change.file, change.after)
    _say(changes, refused, traced, dry_run=dry_run, as_json=as_json)
    sys.exit(0 if changes and not refused and not (traced and traced["error"]) else 1)


def _say(
    changes: list[FileChange],
    refused: Refused,
    traced: Named | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
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
        more = {"model": traced} if traced else {}
        is_written = bool(changes) and not dry_run
        shared.print_json({"changed": files, "refused": left, "written": is_written, **more})
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
    for line in _of_model(traced) if traced else ():
        echo(line, err=dry_run)


def _of_model(traced: Named) -> Iterator[str]:
    if traced["error"]:
        yield f"the model cannot be traced {traced['error']}"
        return
    yield f"traced for {traced['chip']}"
    for call in traced["calls"]:
        old, new = call["configs_before"], call["configs_after"]
        texts = [call["before"], call["after"]]
        if len(old) == len(new) == 1:  # of several configs, in whole
            a, b = (text.split(",") for text in texts)
            texts = [",".join(p for p in x if p not in y) for x, y in ((a, b), (b, a))]
        said = " → ".join(text or "nothing" for text in texts)
        if old == new:
            said = f"{call['after'] or 'what it asks for itself'}, as before"
        yield f"{call['weight']:g} × {call['call']}: {said}"
    for row in traced["unreached"]:
        why = "its calls run other blocks" if row["has_call"] else "no call has its problem"
        why = why if row["has_table"] else "no table here is known to have its kernel"
        yield f"no call is seen to run {row['record']}: {why}"


def _of_formatter(change: FileChange) -> str:
    if change.is_formatted:
        return f"formatted by {change.formatter}"
    if not change.formatter:
        return "the project names no formatter that is known here"
    return f"{change.formatter} is not installed, or would have written other lines of it otherwise"
