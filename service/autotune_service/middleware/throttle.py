"""How many calls an address may make in a second."""

import time
from collections.abc import Callable

_MOST_ADDRESSES = 100_000  # in one second; who comes later is not counted


class Throttle:
    """Counts by address in seconds of the clock. ``limit`` 0: any number."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = limit, clock
        self._second = -1
        self._counts: dict[str, int] = {}

    def allows(self, address: str) -> bool:
        if not self._limit:
            return True
        second = int(self._clock())
        if second != self._second:
            self._second, self._counts = second, {}
        count = self._counts.get(address, 0) + 1
        if count > 1 or len(self._counts) < _MOST_ADDRESSES:
            self._counts[address] = count
        return count <= self._limit
