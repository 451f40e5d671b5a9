"""Where tables are printed."""

from rich.console import Console

LOG_WIDTH = 120


def screen(log_width: int = LOG_WIDTH) -> Console:
    """The terminal; ``log_width``: columns where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=log_width)
