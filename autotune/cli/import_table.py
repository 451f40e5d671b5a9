"""``autotune import``: configs that others have tuned become known here."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from autotune.cli.options import database_and_json, interpreter_options, open_database, print_json
from autotune.domain.chip import parse_chip
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
    target = None if chip is None else parse_chip(chip)
    found = find_tables(table, form, python)
    known: list[KnownConfig] = []
    left: list[dict[str, str]] = []
    for one in found:
        for row in one.table.rows:
            meant = meaning(one.format, row)
            if isinstance(meant, str):
                left.append(_left(one, row.place, meant))
            else:
                chips = meant.chips or ((target,) if target else ())
                known.append(replace(meant, chips=chips))
        left += [_left(one, unread.place, unread.reason) for unread in one.table.unread]
    new = 0
    if known:
        with open_database(database, create=True) as store:
            new = store.save_known_configs(known)
    if as_json:
        print_json({"known": [to_data(one) for one in known], "new": new, "left": left})
    else:
        _print(found, known, new, left, everything)
    sys.exit(0 if known else 1)


def _left(one: FoundTable, place: str, reason: str) -> dict[str, str]:
    return {"file": str(one.path), "place": place, "reason": reason}


def _print(
    found: list[FoundTable],
    known: list[KnownConfig],
    new: int,
    left: list[dict[str, Any]],
    everything: bool,
) -> None:
    for one in found:
        rows, unread = len(one.table.rows), len(one.table.unread)
        echo(f"{one.format.name} {one.path}: {rows} rows, {unread} that cannot be read")
    for kernel, count in Counter(one.kernel for one in known).items():
        timed = sum(one.time_us is not None for one in known if one.kernel == kernel)
        echo(f"{kernel}: {count} configs, {timed} with a time; tuned elsewhere, toolchain unknown")
    for reason, count in Counter(one["reason"] for one in left).most_common():
        echo(f"{count} not taken: {reason}")
    shown = left if everything else left[:_SHOWN]
    for row in shown:
        echo(f"  {Path(row['file']).name} {row['place']}: {row['reason']}")
    if len(left) > len(shown):
        echo(f"  and {len(left) - len(shown)} more: --all prints them")
    echo(f"{len(known)} configs are known, {new} of them new: the next search starts from them")
