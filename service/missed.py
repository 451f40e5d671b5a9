"""What was asked for and is not published: counted in memory, written in batches."""

import asyncio
import logging

from autotune.errors import StoreError
from autotune.key import Key
from autotune.ports import Store

_log = logging.getLogger("autotune.service")

MOST_KEYS = 10_000  # between two writes: what is beyond is dropped, so that nobody fills the memory


class Missed:
    """Counts by key and by what was answered. Only ``write`` touches the database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[tuple[Key, str], int] = {}

    def count(self, key: Key, answer: str, times: int = 1) -> None:
        asked = key, answer
        if asked in self._counts or len(self._counts) < MOST_KEYS:
            self._counts[asked] = self._counts.get(asked, 0) + times

    async def write(self) -> None:
        """What cannot be written now is kept for the next time."""
        if not self._counts:
            return
        counts, self._counts = self._counts, {}
        try:
            await asyncio.to_thread(self._store.save_misses, counts)
        except StoreError as error:
            _log.warning("misses cannot be written: %s", error)
            for (key, answer), times in counts.items():
                self.count(key, answer, times)
