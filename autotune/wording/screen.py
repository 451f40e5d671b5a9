"""Where tables are printed."""

from typing import Any

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


def screen(log_width: int = LOG_WIDTH) -> Console:
    """The terminal; ``log_width``: columns where there is none."""
    console = PlainConsole()
    return console if console.is_terminal else PlainConsole(width=log_width)
