"""``autotune log``: who wrote what to a database."""

import click

from autotune.cli.shared import database_and_json, limit_option, open_database, print_list
from autotune.domain.browsing import AuditEntry
from autotune.domain.codec import to_data


@click.command()
@limit_option
@database_and_json
def log(limit: int, database: str | None, as_json: bool) -> None:
    """List what was written, by whom and from where, the newest first."""
    with open_database(database, create=False) as store:
        entries = store.audit.entries(limit)
    print_list(entries, to_data, _lines, as_json=as_json, empty="nothing was written yet")


def _lines(entry: AuditEntry) -> list[str]:
    by = entry.author
    who = "this machine" if by.token is None else f"{by.name} (token {by.token}) at {by.address}"
    return [f"{entry.created_at:%Y-%m-%d %H:%M:%S} UTC  {entry.action:<9} {entry.change}  by {who}"]
