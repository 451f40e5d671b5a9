"""``autotune db``."""

import click

from autotune.cli.options import database_and_json, print_result


@click.group()
def db() -> None:
    """Look after the database."""


@db.command()
@database_and_json
def upgrade(database: str | None, as_json: bool) -> None:
    """Create the tables, or bring them to this version. Nothing is lost."""
    from autotune_db import upgrade

    version = upgrade(database)
    sentence = f"the database is at version {version}"
    print_result({"version": version}, sentence, as_json=as_json)
