"""``autotune misses``: what models ask for and nobody has tuned."""

import click
from rich import box
from rich.table import Table

from autotune.cli.shared import database_and_json, limit_option, open_database, print_json
from autotune.domain.browsing import Miss
from autotune.domain.codec import to_data
from autotune.wording.config import problem_cell
from autotune.wording.output import echo
from autotune.wording.screen import screen

_WIDE = 100


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
        console = screen()
        console.print(_table(missed, console.width))
    else:
        echo("nothing was asked for in vain")


def _table(missed: list[Miss], width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("miss", "times"):
        table.add_column(name, justify="right")
    for name in ("chip", "problem · toolchain"):
        table.add_column(name, overflow="fold")
    table.add_column("answer", max_width=None if width >= _WIDE else 9)  # a word
    table.add_column("last (UTC)", no_wrap=True)
    for miss in missed:
        table.add_row(
            str(miss.number),
            str(miss.count),
            miss.key.chip.value,
            f"{problem_cell(miss.key)} · {miss.key.toolchain}",
            miss.answer,
            f"{miss.last_at:%Y-%m-%d %H:%M}",
        )
    return table
