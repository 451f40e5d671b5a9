"""``autotune snapshots``: what the fleet gets, and how to take it back."""

from datetime import UTC, datetime, timedelta

import click

from autotune.cli.options import database_and_json, open_database, print_json
from autotune.domain.errors import InvalidInputError
from autotune.wording.output import echo
from autotune.wording.publication import who_says


@click.group()
def snapshots() -> None:
    """List snapshots, roll back to one, pin a record, prune old ones."""


@snapshots.command("list")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000))
@database_and_json
def list_snapshots(limit: int, database: str | None, as_json: bool) -> None:
    """List the newest snapshots and what made them."""
    with open_database(database, create=False) as store:
        newest = store.snapshots(limit)
    if as_json:
        print_json(
            [
                {
                    "number": snapshot.number,
                    "created_at": snapshot.created_at.isoformat(),
                    "note": snapshot.note,
                    "made_by": snapshot.made_by,
                }
                for snapshot in newest
            ]
        )
        return
    for snapshot in newest:
        by = f" by {snapshot.made_by}" if snapshot.made_by else ""
        echo(f"{snapshot.number:>6}  {snapshot.created_at:%Y-%m-%d %H:%M} UTC  {snapshot.note}{by}")


@snapshots.command()
@click.option("--kernel", default=None)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000))
@database_and_json
def records(kernel: str | None, limit: int, database: str | None, as_json: bool) -> None:
    """List what was published, with the numbers that pin takes."""
    with open_database(database, create=False) as store:
        published = store.published(kernel, None, limit)
    if as_json:
        print_json(
            [
                {
                    "number": number,
                    "key": str(record.key),
                    "config": str(record.config),
                    "time_us": record.estimate.time_us,
                    "created_at": record.created_at.isoformat(),
                    "pushed_by": record.pushed_by,
                    "checked_by": record.checked_by,
                }
                for number, record in published
            ]
        )
        return
    for number, record in published:
        echo(f"{number:>6}  {record.created_at:%Y-%m-%d %H:%M} UTC  {record.key}")
        echo(f"        {record.config}  {record.estimate.time_us:.1f} us")
        if record.pushed_by:
            echo(f"        {who_says(record)}")


@snapshots.command()
@click.argument("number", type=int)
@database_and_json
def rollback(number: int, database: str | None, as_json: bool) -> None:
    """Make a new snapshot with the records of snapshot NUMBER."""
    with open_database(database, create=False) as store:
        _say(store.roll_back(number), f"there is no snapshot {number}", as_json)


@snapshots.command()
@click.argument("number", type=int)
@database_and_json
def pin(number: int, database: str | None, as_json: bool) -> None:
    """Keep record NUMBER for its key, whatever is published."""
    with open_database(database, create=False) as store:
        _say(store.pin(number), f"there is no record {number}", as_json)


@snapshots.command()
@click.argument("number", type=int)
@database_and_json
def unpin(number: int, database: str | None, as_json: bool) -> None:
    """Let the key of record NUMBER have its newest record again."""
    with open_database(database, create=False) as store:
        _say(store.unpin(number), f"there is no record {number}", as_json)


def _say(made: int | None, else_says: str, as_json: bool) -> None:
    if made is None:
        raise InvalidInputError(else_says)
    if as_json:
        print_json({"snapshot": made})
    else:
        echo(f"snapshot {made} is in force")


@snapshots.command()
@click.option("--days", required=True, type=click.IntRange(0, 36_500), help="Keep younger ones.")
@database_and_json
def prune(days: int, database: str | None, as_json: bool) -> None:
    """Forget old snapshots; hosts that ask for one of them are refused. Records stay."""
    with open_database(database, create=False) as store:
        count = store.prune(datetime.now(UTC) - timedelta(days=days))
    if as_json:
        print_json({"pruned": count})
    else:
        echo(f"{count} snapshots were forgotten")
