"""The application: its middlewares, its routes, what answers its errors, and what a process does
from its start to its end. What was asked for and is not published is counted in memory.

In a process that a server starts all settings are in the environment. Its logs are JSON, one object
a line, each with the id of the call that it belongs to.
"""

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache, partial
from typing import Any
from weakref import WeakValueDictionary

import anyio
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Router

from autotune.domain.errors import StoreError
from autotune.domain.key import Key
from autotune.domain.store import Store
from autotune.domain.version import VERSION
from autotune_db import SqlStore, open_store
from autotune_service import errors
from autotune_service.api import configs, lookup, queue, reading, writing
from autotune_service.dependencies import BEARER
from autotune_service.errors import booted_at
from autotune_service.middleware import calls, metrics
from autotune_service.middleware.access import Access, AccessMiddleware
from autotune_service.middleware.body import BodyMiddleware
from autotune_service.middleware.calls import request_id
from autotune_service.middleware.hosts import HostsMiddleware, allowed_hosts
from autotune_service.middleware.limits import LimitsMiddleware
from autotune_service.middleware.metrics import CallMeter
from autotune_service.pages.event_stream import live
from autotune_service.pages.exports import exports
from autotune_service.pages.render import error_page
from autotune_service.pages.routes import router as pages
from autotune_service.pages.static_files import assets, prepare
from autotune_service.settings import Settings, from_environment
from autotune_service.snapshot_cache import SnapshotCache


def app_of_process() -> Router:
    set_up_logs()
    _end_with_parent()
    return create_app(None, from_environment())


def _end_with_parent() -> None:
    """Else what a killed server has started lives on, and holds its port."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


_FIELDS = "%(asctime)s %(levelname)s %(name)s %(message)s"


def set_up_logs() -> None:
    """All logs of the process go to stderr in this form."""
    handler = logging.StreamHandler()
    formatter = JsonFormatter(
        _FIELDS,
        rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        datefmt="%Y-%m-%dT%H:%M:%SZ",
        reserved_attrs=[*RESERVED_ATTRS, "color_message"],
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    handler.addFilter(_with_id)
    root = logging.getLogger()
    root.handlers, root.level = [handler], logging.INFO


def _with_id(entry: logging.LogRecord) -> bool:
    if request_id.get():
        entry.request_id = request_id.get()
    return True


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
            await asyncio.shield(asyncio.create_task(self._write_all()))

    async def _write_all(self) -> None:
        async with self._one_write:
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


_JOBS_EVERY, _CLAIMS_EVERY = 5, 60  # refreshes
_COLLECTIONS = (10_000, 5, 400)
"""Nobody else runs meanwhile. So one of the second kind, of all that a large push has made lately,
takes ten milliseconds, and a full one, which takes more and finds next to nothing, is rare."""
_SWITCH_S = 0.0005  # a lookup waits so long for a thread that reads records, at each of its calls


def lifespan_with(
    opened: Callable[[], SqlStore], meter: CallMeter, settings: Settings
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """Opens the store, and looks after it until the application ends. What it yields is the state
    that every call has: ``request.state``, or ``scope["state"]``."""

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[dict[str, Any]]:
        sys.setswitchinterval(_SWITCH_S)
        store = opened()
        state = await _filled(store, meter, settings)
        every_s = settings.refresh_s
        tasks = [
            asyncio.create_task(_refresh_for_ever(state, every_s)),
            asyncio.create_task(_write_misses_for_ever(state["misses"], every_s)),
        ]
        yield state
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await state["misses"].write()
        meter.hand_on()
        for pool in ("matching", "pushes"):
            state[pool].shutdown(cancel_futures=True)
        await asyncio.to_thread(state["database"].close)
        store.close()

    return lifespan


async def _filled(store: SqlStore, meter: CallMeter, settings: Settings) -> dict[str, Any]:
    database = errors.DatabaseThreads(settings.wait_s)
    snapshots = SnapshotCache(store, claimed=settings.trust_writers)
    state: dict[str, Any] = {
        "store": store,
        "meter": meter,
        "database": database,
        "snapshots": snapshots,
        "claimed": snapshots if settings.trust_writers else SnapshotCache(store, claimed=True),
        "misses": MissBuffer(store, known_only=not settings.unknown_kernels),
        "access": Access(store.tokens, database, closed=settings.closed),
        "streams": Counter(),
        "booted_at": booted_at(),
        "recheck": settings.recheck,
        "trust_writers": settings.trust_writers,
        "error_page": error_page,
        "pushes": ThreadPoolExecutor(1, "pushes"),  # each may take a hundred times its size
        "matching": ThreadPoolExecutor(1, "matching"),  # more would only hold up exact answers
        "turns": WeakValueDictionary(),  # at it, by caller
        "connections_per_address": settings.connections_per_address,
    }
    await state["snapshots"].load()
    await state["access"].refresh()
    await asyncio.to_thread(prepare)
    await _report(state, jobs=True)
    metrics.DATABASE_UP.set(True)  # else it would say no until the first refresh
    async with anyio.create_task_group():
        pass  # what streams need is imported now: nobody waits for it later
    gc.collect()
    gc.freeze()  # else each full collection visits all records and routes, and holds up lookups
    gc.set_threshold(*_COLLECTIONS)
    return state


async def _write_misses_for_ever(misses: MissBuffer, every_s: float) -> None:
    """A lock may hold it up, but no newer snapshot with it."""
    while True:
        await asyncio.sleep(every_s)
        try:
            await misses.write()
        except Exception:  # they are counted again the next time
            _log.exception("misses could not be written")


async def _refresh_for_ever(state: dict[str, Any], every_s: float) -> None:
    turn, database = 0, state["database"]
    while True:
        await asyncio.sleep(every_s)
        turn += 1
        try:
            await state["snapshots"].refresh()
            await state["claimed"].refresh()
            await state["access"].refresh()
            await _report(state, jobs=turn % _JOBS_EVERY == 0)
            database.is_up = True
        except StoreError as error:
            if database.is_up:
                _log.warning("answers come from memory: %s", error)
            database.is_up = False
        except Exception:  # the service answers from memory whatever it was
            _log.exception("a newer snapshot could not be taken over")
        metrics.DATABASE_UP.set(database.is_up)
        if state["recheck"] and turn % _CLAIMS_EVERY == 1:  # those that nobody pushes again
            await _check_claims(state["store"])


async def _check_claims(store: SqlStore) -> None:
    """A write: where that fails, the database can be read all the same."""
    try:
        await asyncio.to_thread(store.check_claims)
    except StoreError as error:  # they are looked at again the next time
        _log.warning("claims could not be checked: %s", error)


async def _report(state: dict[str, Any], *, jobs: bool) -> None:
    meter, current = state["meter"], state["snapshots"].current
    meter.holds(current.number, len(current), current.made_at)
    meter.went_back(state["snapshots"].went_back[0])
    meter.hand_on()
    if jobs:
        lost = await asyncio.to_thread(state["store"].lost_tables)
        state["database"].is_whole = not lost
        meter.jobs(await asyncio.to_thread(state["store"].jobs.counts))
        metrics.CLAIMED.set(await asyncio.to_thread(state["store"].count_claims))
        metrics.BROKEN.set(await asyncio.to_thread(lambda: current.broken))


_DOC = """Tuned block shapes of JAX Pallas TPU kernels.

Reading is open unless the service is closed; writing needs `Authorization: Bearer TOKEN`.
Errors are `{"error": {"code", "message", "field"}}`. Times are in microseconds.
"""
_TAGS = [
    {"name": "lookup", "description": "Which config to use."},
    {"name": "registry", "description": "What is published, pushed, wanted and being tuned."},
    {"name": "publishing", "description": "For tuning machines: what was found, what to search."},
    {"name": "workers", "description": "The queue of jobs, for workers without the database."},
    {"name": "administration", "description": "Pins and roll-backs."},
    {"name": "operation", "description": "For balancers and Prometheus."},
]
_ROUTERS = (
    configs.router,
    reading.router,
    writing.router,
    queue.router,
    writing.admin_router,
    reading.unversioned,
    assets,
    live,
    exports,
    pages,
)


def create_app(
    database_url: str | None = None,
    settings: Settings | None = None,
    *,
    opened: Callable[[], SqlStore] | None = None,
) -> Router:
    """The database is opened when the application starts: ``StoreError`` then, where there is none.
    ``opened`` brings another store."""
    chosen = settings or Settings()
    meter = CallMeter(names_kernels=not chosen.closed)

    def from_url() -> SqlStore:
        return open_store(database_url, create=False, wait_s=chosen.wait_s)

    return Router(
        default=_api(chosen.closed),  # a mount would match no path with a line end in it
        lifespan=lifespan_with(opened or from_url, meter, chosen),
        middleware=_middleware(meter, chosen),
    )


@cache
def _api(closed: bool) -> FastAPI:
    """The applications of a process share it, as its routes take a tenth of a second to build:
    what is an application's own is in the state that its lifespan yields."""
    api = FastAPI(
        title="pallas-autotune",
        version=VERSION,
        description=_DOC,
        openapi_tags=_TAGS,
        middleware=[Middleware(calls.HeadMiddleware), Middleware(calls.SafeHeadersMiddleware)],
        exception_handlers={
            errors.HttpError: errors.answer_http_error,
            RequestValidationError: errors.answer_invalid,
            HTTPException: errors.answer_framework_error,
            Exception: calls.answer_bug,
        },
        generate_unique_id_function=lambda route: route.name,
        redirect_slashes=False,  # it would lead to whatever the Host header names
        openapi_url=None,  # in the event loop it would take half a second: see ``reading``
        docs_url=None,
        redoc_url=None,
    )
    for router in (lookup.router, *_ROUTERS):
        needs_token = closed and router is not reading.unversioned
        api.include_router(router, dependencies=[BEARER] if needs_token else [])
    api.state.routes = [r for router in (lookup.router, *_ROUTERS) for r in router.routes]
    for route in api.routes:  # FastAPI builds it at the first call, which all others would wait for
        route.matches({"type": "http", "method": "GET", "path": "", "headers": []})
    return api


def _middleware(meter: CallMeter, settings: Settings) -> list[Middleware]:
    """From the outermost to the innermost."""
    hosts = allowed_hosts(settings)
    return [
        Middleware(calls.CallsMiddleware, meter),
        Middleware(calls.ErrorMiddleware),
        *([Middleware(HostsMiddleware, hosts)] if hosts is not None else []),
        Middleware(AccessMiddleware),
        Middleware(LimitsMiddleware, settings.reads_per_second, settings.writes_per_second),
        Middleware(BodyMiddleware),
        Middleware(lookup.LookupMiddleware),
    ]
