"""How text reaches a terminal, and log lines."""

import logging

import click

from autotune.domain.visible import visible, visible_lines


def echo(text: str, *, err: bool = False) -> None:
    """Print one line."""
    click.echo(visible(text), err=err)


class PlainFormatter(logging.Formatter):
    """Log lines, tracebacks among them."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_lines(super().format(record))
