"""When answers of this process are asked for again: after ``refresh``, another ``configure``, or an
outage that has ended. Who keeps an answer keeps the number of ``GENERATION`` beside it."""

import random
import threading
import time
from collections.abc import Callable
from weakref import WeakMethod

RETRY_AFTER_S = 30.0  # a source that failed is left alone: else each question would wait


class Generation:
    """``number``: answers that were asked for under another one may not be right any more."""

    def __init__(self) -> None:
        self.number = 0
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def next(self) -> int:
        """What is traced from now on asks again."""
        with self._lock:
            self.number += 1
            return self.number

    def next_later(self) -> None:
        """After ``RETRY_AFTER_S``: a source has failed."""
        with self._lock:
            if self._timer is None or not self._timer.is_alive():
                self._timer = threading.Timer(RETRY_AFTER_S, self.next)
                self._timer.daemon = True
                self._timer.start()


GENERATION = Generation()


class Retry:
    """Calls ``attempt`` in the background every ``RETRY_AFTER_S`` or a little later, until it says
    that nothing is left to do, or its object is gone."""

    def __init__(self, attempt: Callable[[], bool]) -> None:
        self._attempt = WeakMethod(attempt)
        self._lock = threading.Lock()
        self._wanted = self._runs = False

    def start(self) -> None:
        """Once more is certain to come after this call."""
        with self._lock:
            self._wanted = True
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(RETRY_AFTER_S * random.uniform(1, 1.5))  # noqa: S311 (not all at once)
            with self._lock:
                self._wanted = False
            attempt = self._attempt()
            is_done = attempt is None or attempt()
            del attempt  # while it sleeps, nobody is kept alive
            with self._lock:
                if is_done and not self._wanted:
                    self._runs = False
                    return
