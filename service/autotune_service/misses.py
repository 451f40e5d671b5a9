"""What was asked for and is not published: counted in memory, written in batches."""

import asyncio
import logging
from functools import partial

from autotune.domain.errors import StoreError
from autotune.domain.key import Key
from autotune.domain.store import Store

_log = logging.getLogger("autotune.service")

_AT_ONCE = 200  # a few hundredths of a second, in which nobody else writes to SQLite,
_PAUSE_S = 0.1  # and time for others, who look for a free lock as often

MOST_KEYS = 2_000  # between two writes: what is beyond is dropped, so that nobody fills the memory


class MissBuffer:
    """Counts by key and by what was answered. Only ``write`` touches the database."""

    def __init__(self, store: Store, *, known_only: bool = True) -> None:
        self._store, self._known_only = store, known_only
        self._counts: dict[tuple[Key, str], int] = {}
        self._one_write = asyncio.Lock()

    def count(self, key: Key, answer: str, times: int = 1) -> None:
        asked = key, answer
        if asked in self._counts or len(self._counts) < MOST_KEYS:
            self._counts[asked] = self._counts.get(asked, 0) + times

    async def write(self) -> None:
        """What cannot be written now is kept for the next time. Who is cancelled meanwhile does not
        end it: the database would have counted what is then counted again."""
        if self._counts or self._one_write.locked():
            await asyncio.shield(asyncio.create_task(self._write()))

    async def _write(self) -> None:
        async with self._one_write:
            await self._write_all()

    async def _write_all(self) -> None:
        counts, self._counts = self._counts, {}
        left = list(counts.items())
        try:
            while left:
                save = partial(self._store.save_misses, known_only=self._known_only)
                await asyncio.to_thread(save, dict(left[:_AT_ONCE]))
                del left[:_AT_ONCE]
                if left:
                    await asyncio.sleep(_PAUSE_S)
        except StoreError as error:
            _log.warning("misses cannot be written: %s", error)
        finally:
            for (key, answer), times in left:
                self.count(key, answer, times)
