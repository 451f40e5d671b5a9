"""``autotune export``: published records as one file, for model servers without a service."""

import sys
from pathlib import Path

import click

from autotune.cli.options import database_option, json_option, open_database, print_json
from autotune.cli.output import echo
from autotune.domain.chip import parse_chip
from autotune.errors import InvalidInputError
from autotune.lookups.bundle import new_bundle, write_bundle


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--kernel", default=None, help="Only records of this kernel.")
@click.option("--chip", default=None, help="Only records of this TPU generation.")
@database_option
@json_option
def export(
    file: Path, kernel: str | None, chip: str | None, database: str | None, as_json: bool
) -> None:
    """Write the newest record of each key to FILE. Exit code 1 when there is none."""
    only = None if chip is None else parse_chip(chip)
    with open_database(database, create=False) as store:
        records = list(store.records(kernel, only))
        bundle = new_bundle(records, kernels=store.kernels())
    try:
        if records:
            write_bundle(file, bundle)
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be written: {error.strerror}") from error
    if as_json:
        print_json({"file": str(file) if records else None, "records": len(records)})
    elif records:
        echo(f"{len(records)} records in {file} ({file.stat().st_size} bytes)")
    else:
        echo("nothing like that is published: no file was written", err=True)
    sys.exit(0 if records else 1)
