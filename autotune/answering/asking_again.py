"""When answers of this process are asked for again: after ``refresh``, another ``configure``, or an
outage that has ended. Who keeps an answer keeps the number of ``GENERATION`` beside it."""

import random
import threading
from collections.abc import Callable

RETRY_AFTER_S = 30.0  # a source that failed is left alone: else each question would wait

Attempt = Callable[[], Callable[[], bool] | None]
"""Gives what says whether a source answers again; None where nobody needs it any more."""


def _at_once() -> Callable[[], bool]:
    return lambda: True


class Generation:
    """``number``: answers that were asked for under another one may not be right any more."""

    def __init__(self) -> None:
        self.number = 0
        self._lock = threading.Lock()
        self._waiting: set[Attempt] = set()

    def next(self) -> None:
        """What is traced from now on asks again."""
        with self._lock:
            self.number += 1

    def next_later(self, attempt: Attempt = _at_once) -> None:
        """In the background, after ``RETRY_AFTER_S`` or a little more: a source has failed. Each
        ``attempt`` that fails is followed by another one."""
        with self._lock:
            if attempt in self._waiting:
                return
            self._waiting.add(attempt)
        pause_s = RETRY_AFTER_S * random.uniform(1, 1.5)  # noqa: S311 (not all at once)
        timer = threading.Timer(pause_s, self._try, [attempt])
        timer.daemon = True
        timer.start()

    def _try(self, attempt: Attempt) -> None:
        with self._lock:
            self._waiting.remove(attempt)
        answers_again = attempt()
        if answers_again and answers_again():
            self.next()
        elif answers_again:
            self.next_later(attempt)


GENERATION = Generation()
