"""``autotune db``, ``log`` (who wrote what), ``token`` (who may write to a service) and
``snapshots`` (what the fleet gets, and how to take it back)."""

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from autotune.cli import shared
from autotune.cli.shared import database_and_json, limit_option, open_database, print_list
from autotune.domain.browsing import AuditEntry
from autotune.domain.codec import to_data
from autotune.domain.errors import InvalidInputError, StoreError
from autotune.domain.record import Record, Snapshot
from autotune.domain.token import ROLES, WRITER, Token
from autotune.wording.output import echo
from autotune.wording.units import counted, micros


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


@click.group()
def token() -> None:
    """Make, list and revoke bearer tokens."""


@token.command()
@click.option("--name", required=True, help="Stands beside everything that is written with it.")
@click.option(
    "--role",
    default=WRITER,
    show_default=True,
    type=click.Choice(ROLES),
    help="What it may do: read, write as well, or administer as well.",
)
@click.option("--days", type=click.IntRange(1, 36_500), help="Until it expires; default: never.")
@shared.database_and_json
def create(name: str, role: str, days: int | None, database: str | None, as_json: bool) -> None:
    """Make a token and print it. It cannot be printed again."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with shared.open_database(database, create=True) as store:
        made, secret = store.tokens.create(name, role, expires_at)
    if as_json:
        shared.print_json({**to_data(made), "token": secret})
    else:
        echo(secret)
        echo(f"token {made.number} of {name}, {role}, {_state(made)}: keep it now", err=True)


@token.command("list")
@shared.database_and_json
def list_tokens(database: str | None, as_json: bool) -> None:
    """List the tokens, without their secrets."""
    with shared.open_database(database, create=False) as store:
        tokens = store.tokens.list()
    none = "there is none yet: make one with `autotune token create --name NAME`"
    shared.print_list(tokens, to_data, lambda token: [_line(token)], as_json=as_json, empty=none)


@token.command()
@click.argument("number", type=int)
@shared.database_and_json
def revoke(number: int, database: str | None, as_json: bool) -> None:
    """Revoke token NUMBER at once."""
    with shared.open_database(database, create=False) as store:
        revoked = store.tokens.revoke(number)
    if revoked is None:
        raise InvalidInputError(f"there is no token {number}: see autotune token list")
    sentence = f"token {number} of {revoked.name} is revoked"
    shared.print_result(to_data(revoked), sentence, as_json=as_json)


def _line(token: Token) -> str:
    return f"{token.number:>4}  {token.role:<7} {token.name}  ({_state(token)})"


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return f"revoked {token.revoked_at:%Y-%m-%d %H:%M} UTC"
    if token.expires_at is None:
        return "never expires"
    return f"until {token.expires_at:%Y-%m-%d %H:%M}"


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
    from autotune.wording.publication import who_says  # what else there is does not wait for it

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
