"""How text reaches a terminal, and log lines."""

import logging
import time
from collections.abc import Callable

import click

from autotune.domain.visible import visible, visible_lines
from autotune.wording.units import seconds

STARTING = "starting the compilers"  # on a busy machine for ten seconds and more


def echo(text: str, *, err: bool = False) -> None:
    click.echo(visible(text), err=err)


class PlainFormatter(logging.Formatter):
    """Log lines, tracebacks among them."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_lines(super().format(record))


class Countdown:
    """How far something long is, and how long it still takes: a line every few seconds. ``say``
    takes them; ``what``: is done with how many of how many."""

    _EVERY_S = 2.0

    def __init__(self, say: Callable[[str], None], what: str) -> None:
        self._say, self._what = say, what
        self._began = self._said = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done and now - self._said >= self._EVERY_S:
            self._said, left_s = now, (now - self._began) * (total - done) / done
            self._say(f"{self._what} {done:,} of {total:,}, {seconds(left_s)} left")
