"""``autotune import``: configs that others have tuned become known here."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from autotune.cli.options import (
    chip_named,
    database_and_json,
    interpreter_options,
    open_database,
    print_json,
)
from autotune.domain.codec import to_data
from autotune.domain.known_config import KnownConfig
from autotune.tables.formats import FoundTable, find_tables
from autotune.tables.table import meaning
from autotune.wording.output import echo

_SHOWN = 20

table_options = click.option(
    "--format",
    "form",
    default=None,
    metavar="FORMAT",
    help="What kind of table a file is, where its name does not say.",
)


@click.command("import")
@click.argument("table")
@table_options
@click.option("--chip", default=None, help="The TPU of rows whose table names none.")
@click.option("--all", "everything", is_flag=True, help="Print every row that was not taken.")
@interpreter_options
@database_and_json
def import_table(
    table: str,
    form: str | None,
    chip: str | None,
    everything: bool,
    python: str,
    database: str | None,
    as_json: bool,
) -> None:
    """Read TABLE, and start the next searches of its problems from its configs.

    TABLE is a file, or the name of a format, whose table is then the one that is installed for
    --python: jax-rpa, tpu-inference, tokamax. Nothing of it is executed. What a row says is known
    as tuned elsewhere, with an unknown toolchain. Exit code 1 when no row could be taken.
    """
    target = chip_named(chip)
    tables = find_tables(table, form, python)
    known: list[KnownConfig] = []
    left: list[dict[str, str]] = []
    for source in tables:
        for row in source.table.rows:
            meant = meaning(source.format, row)
            if isinstance(meant, str):
                left.append(_left(source, row.place, meant))
            else:
                chips = meant.chips or ((target,) if target else ())
                known.append(replace(meant, chips=chips))
        left += [_left(source, unread.place, unread.reason) for unread in source.table.unread]
    new = 0
    if known:
        with open_database(database, create=True) as store:
            new = store.save_known_configs(known)
    if as_json:
        print_json({"known": [to_data(config) for config in known], "new": new, "left": left})
    else:
        _print(tables, known, new, left, everything)
    sys.exit(0 if known else 1)


def _left(source: FoundTable, place: str, reason: str) -> dict[str, str]:
    return {"file": str(source.path), "place": place, "reason": reason}


def _print(
    tables: list[FoundTable],
    known: list[KnownConfig],
    new: int,
    left: list[dict[str, Any]],
    everything: bool,
) -> None:
    for source in tables:
        rows, unread = len(source.table.rows), len(source.table.unread)
        echo(f"{source.format.name} {source.path}: {rows} rows, {unread} that cannot be read")
    for kernel, count in Counter(config.kernel for config in known).items():
        timed = sum(config.time_us is not None for config in known if config.kernel == kernel)
        echo(f"{kernel}: {count} configs, {timed} with a time; tuned elsewhere, toolchain unknown")
    for reason, count in Counter(row["reason"] for row in left).most_common():
        echo(f"{count} not taken: {reason}")
    shown = left if everything else left[:_SHOWN]
    for row in shown:
        echo(f"  {Path(row['file']).name} {row['place']}: {row['reason']}")
    if len(left) > len(shown):
        echo(f"  and {len(left) - len(shown)} more: --all prints them")
    echo(f"{len(known)} configs are known, {new} of them new: the next search starts from them")
