"""The generation of this process's answers. It ends with ``refresh``, with another ``configure``,
or when an outage is over. Who keeps an answer keeps the number of ``GENERATION`` beside it: where
that has changed, they ask again."""

import os
import random
from collections.abc import Callable
from itertools import count
from threading import Timer

RETRY_AFTER_S = 30.0  # a source that failed is left alone: else each question would wait

Recovery = Callable[[], Callable[[], bool] | None]
"""Gives what says whether a source answers again; None where nobody needs it any more."""


class Generation:
    """``number``: answers that were asked for under another one may not be right any more."""

    def __init__(self) -> None:
        self.number, self._numbers = 0, count(1)
        self._waiting: set[Recovery] = set()

    def next(self) -> None:
        """What is traced from now on asks again."""
        self.number = next(self._numbers)

    def after_fork(self) -> None:
        """Threads end in a forked process (of a server that loads first and forks then), and with
        them what would ask again."""
        self._waiting = set()
        self.next()

    def next_later(self, recovery: Recovery = lambda: lambda: True) -> None:
        """In the background, after ``RETRY_AFTER_S`` or a little more: a source has failed. Each
        ``recovery`` that fails is followed by another one."""
        if recovery not in self._waiting:
            self._waiting.add(recovery)
            pause_s = RETRY_AFTER_S * random.uniform(1, 1.5)  # noqa: S311 (not all at once)
            timer = Timer(pause_s, self._try, [recovery])
            timer.daemon = True
            timer.start()

    def _try(self, recovery: Recovery) -> None:
        self._waiting.discard(recovery)
        answers_again = recovery()
        if answers_again and answers_again():
            self.next()
        elif answers_again:
            self.next_later(recovery)


GENERATION = Generation()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=GENERATION.after_fork)
