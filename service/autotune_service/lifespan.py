"""What a process of the service does from its start to its end."""

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.applications import Starlette

from autotune.errors import StoreError
from autotune_db import SqlStore
from autotune_service.database import DatabaseThreads
from autotune_service.middleware.access import Access
from autotune_service.middleware.metrics import Meter
from autotune_service.misses import MissBuffer
from autotune_service.pages.static_files import prepare
from autotune_service.settings import Settings
from autotune_service.snapshot_cache import SnapshotCache

_log = logging.getLogger("autotune.service")

_JOBS_EVERY = 5  # refreshes
_SWITCH_S = 0.0005  # a lookup waits so long for a thread that reads records, at each of its calls


def lifespan_with(
    opened: Callable[[], SqlStore], meter: Meter, settings: Settings
) -> Callable[[Starlette], AbstractAsyncContextManager[dict[str, int]]]:
    """Opens the store, fills ``app.state``, and looks after both until the application ends."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, int]]:
        sys.setswitchinterval(_SWITCH_S)
        store = opened()
        await _fill(app, store, meter, settings)
        every_s = settings.refresh_s
        tasks = [
            asyncio.create_task(_refresh_for_ever(app, every_s)),
            asyncio.create_task(_write_misses_for_ever(app.state.misses, every_s)),
        ]
        yield {"connections_per_address": settings.connections_per_address}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await app.state.misses.write()
        meter.hand_on()
        app.state.matching.shutdown(cancel_futures=True)
        await asyncio.to_thread(app.state.database.close)
        store.close()

    return lifespan


async def _fill(app: Starlette, store: SqlStore, meter: Meter, settings: Settings) -> None:
    state = app.state
    state.store, state.meter, state.database_ok = store, meter, True
    state.snapshots, state.misses = (
        SnapshotCache(store),
        MissBuffer(store, known_only=not settings.unknown_kernels),
    )
    state.database = DatabaseThreads(settings.wait_s)
    state.access = Access(store.tokens, state.database, closed=settings.closed)
    state.streams = Counter()
    state.matching = ThreadPoolExecutor(1, "matching")  # more would only hold up exact answers
    await state.snapshots.load()
    await state.access.refresh()
    await asyncio.to_thread(prepare)
    await _report(app, jobs=True)


async def _write_misses_for_ever(misses: MissBuffer, every_s: float) -> None:
    """A lock may hold it up, but no newer snapshot with it."""
    while True:
        await asyncio.sleep(every_s)
        await misses.write()


async def _refresh_for_ever(app: Starlette, every_s: float) -> None:
    turn, state = 0, app.state
    while True:
        await asyncio.sleep(every_s)
        turn += 1
        try:
            await state.snapshots.refresh()
            await state.access.refresh()
            await _report(app, jobs=turn % _JOBS_EVERY == 0)
            state.database_ok = True
        except StoreError as error:
            if state.database_ok:
                _log.warning("answers come from memory: %s", error)
            state.database_ok = False
        except Exception:  # the service answers from memory whatever it was
            _log.exception("a newer snapshot could not be taken over")
        state.meter.database(up=state.database_ok)


async def _report(app: Starlette, *, jobs: bool) -> None:
    meter, snapshots = app.state.meter, app.state.snapshots
    meter.holds(snapshots.current.number, len(snapshots.current), snapshots.made_at)
    meter.hand_on()
    if jobs:
        meter.jobs(await asyncio.to_thread(app.state.store.jobs.counts))
        meter.broken(await asyncio.to_thread(snapshots.current.broken))
