"""``autotune log``: who wrote what to a database."""

import click

from autotune.cli.options import database_and_json, open_database, print_json
from autotune.domain.audit import AuditEntry
from autotune.domain.codec import to_data
from autotune.wording.output import echo


@click.command()
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000))
@database_and_json
def log(limit: int, database: str | None, as_json: bool) -> None:
    """List what was written, by whom and from where, the newest first."""
    with open_database(database, create=False) as store:
        found = store.audit.entries(limit)
    if as_json:
        print_json([to_data(one) for one in found])
    elif found:
        for one in found:
            echo(_line(one))
    else:
        echo("nothing was written yet")


def _line(one: AuditEntry) -> str:
    by = one.author
    who = "this machine" if by.token is None else f"{by.name} (token {by.token}) at {by.address}"
    return f"{one.created_at:%Y-%m-%d %H:%M:%S} UTC  {one.action:<9} {one.change}  by {who}"
