"""Where tables are printed."""

import os
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from autotune.domain.visible import visible

LOG_WIDTH = 130


class PlainConsole(Console):
    """Prints text as it is: no markup in it, and nothing that acts on the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)


class PipedConsole(PlainConsole):
    """Of a pipe or a file: no line ends in padding."""

    def print(self, *objects: Any, **options: Any) -> None:
        with self.capture() as captured:
            super().print(*objects, **options)
        for line in captured.get().splitlines():
            click.echo(line.rstrip())


def screen() -> Console:
    """The terminal; of ``LOG_WIDTH`` columns where there is none and ``COLUMNS`` says nothing."""
    console = PlainConsole()
    if console.is_terminal:
        return console
    return PipedConsole(width=None if "COLUMNS" in os.environ else LOG_WIDTH)
