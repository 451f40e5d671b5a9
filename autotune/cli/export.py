"""``autotune export``: published records as one file: a bundle for model servers without a service,
or a table as others have it."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from autotune.answering.bundle import MOST_TRIED, bundle_to_bytes, new_bundle
from autotune.cli import shared
from autotune.cli.problems import problem_options, source_changes, wanted_problem
from autotune.domain.arguments import ProblemWords
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import identity_of
from autotune.domain.record import timed_configs
from autotune.tables.formats import ENDINGS
from autotune.wording.output import Countdown, echo
from autotune.wording.publication import in_words
from autotune.wording.units import counted

_BUNDLE = "bundle"
_MANY = 10_000  # records: writing them takes seconds
_TEXTS = {**ENDINGS, ".json": "json"}
_TEXTS |= dict.fromkeys((".patch", ".diff"), "tpu-inference")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@shared.default_option(
    "--format",
    "form",
    default=_BUNDLE,
    metavar="FORMAT",
    help="bundle, maxtext, json or csv. tokamax, tpu-inference, jax-rpa or sglang-jax: a "
    "patch of the tables that are installed for --python.",
)
@click.option(
    "--table",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Patch this copy of the table's source, not the installed one.",
)
@click.option("--kernel", help="Only records of this kernel.")
@click.option("--chip", help="Only records of this TPU generation.")
@problem_options
@shared.accept_claimed_option
@shared.interpreter_options
@shared.database_and_json
def export(
    file: Path,
    form: str,
    table: str | None,
    kernel: str | None,
    chip: str | None,
    words: ProblemWords,
    accept_claimed: bool,
    python: str,
    database: str | None,
    as_json: bool,
) -> None:
    """Write the newest record of each key to FILE; into a table that of each kernel, problem and
    TPU. Exit code 1 when there is none, or when some have no place in the format."""
    if form == _BUNDLE and file.suffix in _TEXTS:
        raise InvalidInputError(
            f"a bundle is packed, and {file} is called like a text: say --format "
            f"{_TEXTS[file.suffix]}, or call it {file.with_suffix('.bundle')}"
        )
    only = shared.chip_named(chip)
    with shared.open_database(database, create=False) as store:
        reading = Countdown(partial(echo, err=True), "read")
        kernel, problem = wanted_problem(store, kernel, words)
        records = store.records(kernel, only, claimed=accept_claimed, tell=reading)
        records = [record for record in records if problem in (None, record.key.problem)]
        if len(records) > _MANY:
            echo(f"writing {len(records):,} records", err=True)
        tried = {
            identity_of(record.key): timed_configs(store.trials(record.key))[:MOST_TRIED]
            for record in (records if form == _BUNDLE and len(records) <= _MANY else ())
        }
        bundle = new_bundle(list(map(in_words, records)), kernels=store.kernels(), tried=tried)
        changed = source_changes(store, [record.key for record in records])
    refused: Sequence[tuple[str, str]] = ()
    is_written = bool(records)
    if records and form == _BUNDLE:
        shared.write_file(file, bundle_to_bytes(bundle))
    elif records:
        from autotune.tables.export import TableExport

        exported = TableExport(name=form, python=python, table=table).of(records)
        records, refused = list(exported.records), exported.refused
        is_written = bool(exported.text)
        if is_written:
            shared.write_file(file, exported.text)
    _say(file if is_written else None, len(records), refused, changed, as_json)
    sys.exit(0 if records and not refused else 1)


def _say(
    file: Path | None,
    count: int,
    refused: Sequence[tuple[str, str]],
    changed: Sequence[str],
    as_json: bool,
) -> None:
    if as_json:
        left = [{"record": record, "reason": why} for record, why in refused]
        written = None if file is None else str(file)
        more = {"refused": left} if left else {}
        shared.print_json(
            {"file": written, "records": count, "source_changed": len(changed), **more}
        )
        return
    for record, why in refused:
        echo(f"not written: {record}: {why}", err=True)
    if file is not None:
        size = f" ({file.stat().st_size} bytes)" * file.is_file()
        echo(f"{counted(count, 'record')} in {file}{size}", err=not size)
        for line in dict.fromkeys(changed):
            echo(line, err=True)
    elif count:
        echo(f"the table says what these {count} records say: no file was written")
    elif not refused:
        echo("nothing like that is published: no file was written", err=True)
