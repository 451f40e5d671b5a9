"""``autotune token``: who may write to a service."""

from datetime import UTC, datetime, timedelta

import click

from autotune.cli import shared
from autotune.domain.codec import to_data
from autotune.domain.errors import InvalidInputError
from autotune.domain.token import ROLES, WRITER, Token
from autotune.wording.output import echo


@click.group()
def token() -> None:
    """Make, list and revoke bearer tokens."""


@token.command()
@click.option("--name", required=True, help="Stands beside everything that is written with it.")
@shared.default_option(
    "--role",
    default=WRITER,
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
