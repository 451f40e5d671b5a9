"""``autotune snapshots``: what the fleet gets, and how to take it back."""

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from autotune.cli import shared
from autotune.domain.codec import to_data
from autotune.domain.errors import InvalidInputError
from autotune.domain.record import Record, Snapshot
from autotune.wording.publication import who_says
from autotune.wording.units import counted, micros

_NONE = "nothing is published yet"


@click.group()
def snapshots() -> None:
    """List snapshots, roll back to one, pin a record, prune old ones."""


@snapshots.command("list")
@shared.limit_option
@shared.database_and_json
def list_snapshots(limit: int, database: str | None, as_json: bool) -> None:
    """List the newest snapshots and what made them."""
    with shared.open_database(database, create=False) as store:
        newest = store.snapshots(limit)
    shared.print_list(newest, to_data, _snapshot_lines, as_json=as_json, empty=_NONE)


def _snapshot_lines(snapshot: Snapshot) -> list[str]:
    by = f" by {snapshot.made_by}" if snapshot.made_by else ""
    return [f"{snapshot.number:>6}  {snapshot.created_at:%Y-%m-%d %H:%M} UTC  {snapshot.note}{by}"]


@snapshots.command()
@shared.limit_option
@shared.database_and_json
def records(limit: int, database: str | None, as_json: bool) -> None:
    """List what was published, with the numbers that pin takes."""
    with shared.open_database(database, create=False) as store:
        published = store.published(None, None, limit)
    shared.print_list(published, _record_data, _record_lines, as_json=as_json, empty=_NONE)


def _record_data(numbered: tuple[int, Record]) -> dict[str, Any]:
    number, record = numbered
    return {
        "number": number,
        "key": str(record.key),
        "config": str(record.config),
        "time_us": record.estimate.time_us,
        "created_at": record.created_at.isoformat(),
        "pushed_by": record.pushed_by,
        "checked_by": record.checked_by,
        "standing": record.standing,
    }


def _record_lines(numbered: tuple[int, Record]) -> list[str]:
    number, record = numbered
    return [
        f"{number:>6}  {record.created_at:%Y-%m-%d %H:%M} UTC  {record.key}",
        f"        {record.config}  {micros(record.estimate.time_us)}",
        f"        {who_says(record)}",
    ]


def _action(name: str, subject: str, about: str) -> None:
    """Adds a command that makes a new snapshot by the method of the store of that name."""

    @snapshots.command(name, help=about)
    @click.argument("number", type=int)
    @shared.database_and_json
    def act(number: int, database: str | None, as_json: bool) -> None:
        with shared.open_database(database, create=False) as store:
            made = getattr(store, {"rollback": "roll_back"}.get(name, name))(number)
        if made is None:
            lists = {"snapshot": "snapshots list", "record": "snapshots records"}[subject]
            raise InvalidInputError(f"there is no {subject} {number}: autotune {lists} shows all")
        shared.print_result({"snapshot": made}, f"snapshot {made} is in force", as_json=as_json)


_action("rollback", "snapshot", "Make a new snapshot with the records of snapshot NUMBER.")
_action("pin", "record", "Keep record NUMBER for its key, whatever is published.")
_action("unpin", "record", "Let the key of record NUMBER have its newest record again.")


@snapshots.command()
@click.option("--days", required=True, type=click.IntRange(0, 36_500), help="Keep younger ones.")
@shared.database_and_json
def prune(days: int, database: str | None, as_json: bool) -> None:
    """Forget old snapshots; hosts that ask for one of them are refused. Records stay."""
    with shared.open_database(database, create=False) as store:
        count = store.prune(datetime.now(UTC) - timedelta(days=days))
    shared.print_result({"pruned": count}, f"forgot {counted(count, 'snapshot')}", as_json=as_json)
