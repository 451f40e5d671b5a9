"""The work of the database, in threads of its own and for a bounded time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from autotune.domain.errors import StoreError, UnstorableError
from autotune_service.errors import HttpError, unavailable

T = TypeVar("T")

_READERS = 6
_WRITERS = 2  # SQLite has one writer, and PostgreSQL one publisher: more would only wait there


class DatabaseThreads:
    """What writes may wait for a lock. It has threads of its own, so that it holds up neither what
    reads nor newer snapshots; who waits for longer than ``wait_s`` is told so. ``is_up``: whether
    the last look at the database succeeded."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._readers = ThreadPoolExecutor(_READERS, "reads")
        self._writers = ThreadPoolExecutor(_WRITERS, "writes")
        self.is_up = True

    async def read(self, work: Callable[..., T], *arguments: Any) -> T:
        """Raises ``HttpError``."""
        return await self._within(self._readers, partial(work, *arguments))

    async def write(self, work: Callable[..., T], *arguments: Any) -> T:
        """Raises ``HttpError``; work that has begun by then may still be done: so what is asked for
        again must change nothing."""
        return await self._within(self._writers, partial(work, *arguments))

    def close(self) -> None:
        """Waits for what has begun."""
        for pool in (self._readers, self._writers):
            pool.shutdown(cancel_futures=True)

    async def _within(self, pool: Executor, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(self._wait_s):
                return await asyncio.get_running_loop().run_in_executor(pool, work)
        except TimeoutError as error:
            late = StoreError(f"it was not done within {self._wait_s:g} s")
            raise unavailable(late) from error
        except UnstorableError as error:
            message = (
                "a text or number that was given cannot be kept: leave out what nobody can read"
            )
            raise HttpError(422, "invalid_field", message) from error
        except StoreError as error:
            raise unavailable(error) from error
