"""What was asked for and is not published: counted in memory, written in batches."""

import asyncio
import logging

from autotune.errors import StoreError
from autotune.key import Key
from autotune.ports import Store

_log = logging.getLogger("autotune.service")

MOST_KEYS = 10_000  # between two writes: what is beyond is dropped, so that nobody fills the memory


class Missed:
    """Counts by key. Only ``write`` touches the database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[Key, int] = {}

    def count(self, key: Key) -> None:
        if key in self._counts or len(self._counts) < MOST_KEYS:
            self._counts[key] = self._counts.get(key, 0) + 1

    async def write(self) -> None:
        """What cannot be written now is kept for the next time."""
        if not self._counts:
            return
        counts, self._counts = self._counts, {}
        try:
            await asyncio.to_thread(self._store.save_misses, counts)
        except StoreError as error:
            _log.warning("misses cannot be written: %s", error)
            for key, count in counts.items():
                if key in self._counts or len(self._counts) < MOST_KEYS:
                    self._counts[key] = self._counts.get(key, 0) + count
