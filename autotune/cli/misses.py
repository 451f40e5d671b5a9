"""``autotune misses``: what models ask for and nobody has tuned."""

import click
from rich import box
from rich.table import Table

from autotune.cli.shared import database_and_json, limit_option, open_database, print_json
from autotune.domain.browsing import Miss
from autotune.domain.codec import to_data
from autotune.wording.output import echo
from autotune.wording.screen import screen

_LOG_WIDTH = 160  # columns, where there is no terminal


@click.command()
@limit_option
@database_and_json
def misses(limit: int, database: str | None, as_json: bool) -> None:
    """List what was asked for and is not published, the most wanted first."""
    with open_database(database, create=False) as store:
        missed = store.misses(limit)
    if as_json:
        print_json(list(map(to_data, missed)))
    elif missed:
        console = screen(_LOG_WIDTH)
        console.print(_table(missed))
    else:
        echo("nothing was asked for in vain")


def _table(missed: list[Miss]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("times", justify="right")
    for name in ("kernel", "problem", "chip", "jax", "libtpu", "answer", "last (UTC)", "miss"):
        table.add_column(name, overflow="fold")
    for miss in missed:
        key = miss.key
        cells = (
            str(miss.count),
            key.kernel,
            str(key.problem),
            key.chip.value,
            key.toolchain.jax,
            " ".join(filter(None, key.toolchain.parts[2:])),
            miss.answer,
            f"{miss.last_at:%Y-%m-%d %H:%M}",
            str(miss.number),
        )
        table.add_row(*cells)
    return table
