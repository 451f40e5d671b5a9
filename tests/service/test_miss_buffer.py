"""Misses are counted once, whatever happens while they are written."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from autotune_service.app import MissBuffer
from tests.samples.matching import question


class Slow:
    """A database that takes its time, and is not stopped by who has lost patience."""

    def __init__(self) -> None:
        self.counted = 0

    def save_misses(self, counts: Mapping[Any, int], *, known_only: bool) -> None:
        time.sleep(0.2)
        self.counted += sum(counts.values())


def test_a_service_that_stops_in_the_middle_of_a_write_counts_once() -> None:
    store = Slow()
    missed = MissBuffer(store)  # type: ignore[arg-type]

    async def run() -> None:
        missed.count(question(1), "default")
        writing = asyncio.create_task(missed.write())
        await asyncio.sleep(0.05)
        missed.count(question(2), "default")
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
        await missed.write()

    asyncio.run(run())
    assert store.counted == 2
