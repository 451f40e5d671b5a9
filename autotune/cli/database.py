"""``autotune db``."""

import sys

import click

from autotune.cli import shared
from autotune.domain.errors import StoreError


@click.group()
def db() -> None:
    """Look after the database."""


@db.command()
@shared.database_and_json
def upgrade(database: str | None, as_json: bool) -> None:
    """Create the tables, or bring them to this version. Nothing is lost."""
    from autotune_db import upgrade

    version = upgrade(database)
    sentence = f"the database is at version {version}"
    shared.print_result({"version": version}, sentence, as_json=as_json)


_DELETE = "DELETE FROM {1} WHERE id = {0}"
_LAST = (
    "DELETE FROM {1} WHERE id = {0}; in SQLite also "
    "UPDATE sqlite_sequence SET seq = (SELECT max(id) FROM {1}) WHERE name = '{1}'"
)
_GO_ON = {  # what others name stays; in SQL that is shown and never run
    "autotune_keys": "nothing else says which problem it is: mend the one of row {0}",
    "autotune_records": "UPDATE autotune_records SET until_id = 0 WHERE id = {0}",
    "autotune_snapshots": "UPDATE autotune_snapshots SET created_at = CURRENT_TIMESTAMP "
    "WHERE id = {0}",
    "autotune_trials": "DELETE FROM autotune_profiles WHERE trial_id = {0}; "
    "DELETE FROM autotune_trials WHERE id = {0}",
    "autotune_jobs": "DELETE FROM autotune_job_logs WHERE job_id = {0}; "
    "DELETE FROM autotune_jobs WHERE id = {0}",
}


@db.command()
@shared.database_and_json
def check(database: str | None, as_json: bool) -> None:
    """List the rows that cannot be read, which all else leaves out, and the SQL to go on without
    each, where no backup has it. Exit code 1 where there are some."""
    from autotune_db.damage_list import MOST_ROWS

    with shared.open_database(database, create=False) as store:
        if lost := store.lost_tables():
            raise StoreError(f"tables are lost: {', '.join(lost)}. Put back a copy")
        damaged, orphans = store.damaged(), store.orphans()
    listed = [
        {"table": table, "id": number, "why": why, "remedy": remedy.format(number, table)}
        for table, number, why in damaged
        for remedy in (_LAST if number > MOST_ROWS else _GO_ON.get(table, _DELETE),)
    ]
    listed += [
        {"table": table, "id": number, "why": why, "remedy": _DELETE.format(number, table)}
        for table, number, why in orphans
    ]
    lines = "row {id} of {table}: {why}\n  {remedy}".format_map
    empty = "every row can be read"
    shared.print_list(
        listed, dict, lambda row: lines(row).splitlines(), as_json=as_json, empty=empty
    )
    sys.exit(1 if listed else 0)
