"""How often somebody may do something in a second."""

import asyncio
import time
from collections.abc import Callable, Hashable

from autotune_service.errors import HttpError

_REFUSAL_S = 0.25
_MOST_CALLERS = 100_000  # in one second; who comes later is not counted


class Throttle:
    """Counts by caller in seconds of the clock. ``limit`` 0: any number."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = limit, clock
        self._second = -1
        self._counts: dict[Hashable, int] = {}

    def is_used_up(self, caller: Hashable) -> bool:
        """Whether ``allows`` would say no; counts nothing."""
        fresh = self._second == int(self._clock())
        return bool(self._limit) and fresh and self._counts.get(caller, 0) >= self._limit

    def allows(self, caller: Hashable, calls: int = 1) -> bool:
        """``calls``: as how many it counts; the first of a second is allowed however much that
        is."""
        if not self._limit:
            return True
        second = int(self._clock())
        if second != self._second:
            self._second, self._counts = second, {}
        before = self._counts.get(caller, 0)
        if before or len(self._counts) < _MOST_CALLERS:
            self._counts[caller] = before + calls
        return before == 0 or before + calls <= self._limit


async def refuse_late() -> None:
    """Who asks again at once is answered so often only as there are connections for an address."""
    await asyncio.sleep(_REFUSAL_S)
    raise HttpError(429, "too_many_calls", "too many calls in this second: try again")
