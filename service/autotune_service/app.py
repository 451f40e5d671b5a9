"""The application: the parts of a process, how they start, and what looks after them."""

import asyncio
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from autotune import __version__
from autotune.errors import StoreError
from autotune_db import SqlStore, open_store
from autotune_service.api.configs import OneConfig
from autotune_service.api.lookup import Lookup
from autotune_service.api.queue import queue
from autotune_service.api.routes import outside, router
from autotune_service.api.schema import ConfigResponse, LookupRequest, LookupResponse, SnapshotName
from autotune_service.api.uploads import Name
from autotune_service.api.writing import ruling, writing
from autotune_service.database import Work
from autotune_service.dependencies import REFUSED
from autotune_service.errors import Refusal, answer_bug, answer_refusal
from autotune_service.middleware.access import Access
from autotune_service.middleware.front import LOOKUP, Front
from autotune_service.middleware.metrics import Meter
from autotune_service.misses import Missed
from autotune_service.pages.assets import assets
from autotune_service.pages.exports import exports
from autotune_service.pages.live import live
from autotune_service.pages.routes import router as pages
from autotune_service.pages.static_files import prepare
from autotune_service.settings import Settings, from_environment
from autotune_service.snapshot_cache import Held

_log = logging.getLogger("autotune.service")

_JOBS_EVERY = 5  # refreshes
_SWITCH_S = 0.0005  # a lookup waits so long for a thread that reads records, at each of its calls
_DOC = """Tuned block shapes of JAX Pallas TPU kernels.

Reading is open unless the service is closed; writing needs `Authorization: Bearer TOKEN`.
Errors are `{"error": {"code", "message", "field"}}`. Times are in microseconds.
"""


class Service(FastAPI):
    """FastAPI behind the front, which is there once the application has started."""

    front: Front | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.front is not None:
            await self.front(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(
    database_url: str | None = None,
    settings: Settings | None = None,
    *,
    opened: Callable[[], SqlStore] | None = None,
) -> Service:
    """The database is opened when the application starts: ``StoreError`` then, where there is none.
    ``opened`` brings another store."""
    chosen = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: Service) -> AsyncIterator[None]:
        store = opened() if opened else open_store(database_url, create=False, wait_s=chosen.wait_s)
        sys.setswitchinterval(_SWITCH_S)
        parts = _Parts(app, store, chosen)
        await parts.start()
        tasks = [
            asyncio.create_task(one(chosen.refresh_s)) for one in (parts.look_after, parts.count)
        ]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await parts.stop()

    app = Service(
        title="pallas-autotune",
        version=__version__,
        description=_DOC,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    _describe_hot_routes(app)
    for routes in (router, writing, queue, ruling, outside, assets, live, exports, pages):
        app.include_router(routes)
    app.add_exception_handler(Refusal, answer_refusal)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _other)
    app.add_exception_handler(Exception, answer_bug)
    return app


def for_servers() -> Service:
    """For servers that start several processes: all settings are in the environment."""
    from autotune_service.middleware.logs import set_up

    set_up()
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


class _Parts:
    """What a process of the service is made of."""

    def __init__(self, app: Service, store: SqlStore, settings: Settings) -> None:
        self._app, self._store = app, store
        self._held, self._missed, self._meter = Held(store), Missed(store), Meter()
        self._work = Work(settings.wait_s)
        self._access = Access(store.tokens, self._work, closed=settings.closed)
        self._settings = settings

    async def start(self) -> None:
        await self._held.load()
        await self._access.refresh()
        await asyncio.to_thread(prepare)
        app, parts = self._app, (self._held, self._missed, self._meter)
        app.state.store, app.state.held, app.state.meter = self._store, self._held, self._meter
        app.state.work, app.state.database_ok = self._work, True
        await self._report(jobs=True)
        one = OneConfig(*parts)  # ahead of the route that describes it
        app.router.routes.insert(0, Route(one.path, one.__call__, methods=["GET"]))
        app.front = Front(
            super(Service, app).__call__, Lookup(*parts), self._access, self._meter, self._settings
        )

    async def stop(self) -> None:
        await self._missed.write()
        self._meter.hand_on()
        await asyncio.to_thread(self._work.close)
        self._store.close()

    async def count(self, every_s: float) -> None:
        """Writes down what was missed. A lock may hold it up, but no newer snapshot with it."""
        while True:
            await asyncio.sleep(every_s)
            await self._missed.write()

    async def look_after(self, refresh_s: float) -> None:
        """Until it is cancelled."""
        turn = 0
        while True:
            await asyncio.sleep(refresh_s)
            turn += 1
            try:
                await self._held.refresh()
                await self._access.refresh()
                await self._report(jobs=turn % _JOBS_EVERY == 0)
                self._app.state.database_ok = True
            except StoreError as error:
                if self._app.state.database_ok:
                    _log.warning("answers come from memory: %s", error)
                self._app.state.database_ok = False
            except Exception:  # the service answers from memory whatever it was
                _log.exception("a newer snapshot could not be taken over")
            self._meter.database(up=self._app.state.database_ok)

    async def _report(self, *, jobs: bool) -> None:
        current = self._held.current
        self._meter.holds(current.number, len(current), self._held.made_at)
        self._meter.hand_on()
        if jobs:
            self._meter.jobs(await asyncio.to_thread(self._store.jobs.counts))


def _describe_hot_routes(app: FastAPI) -> None:
    """For OpenAPI; the routes above answer first."""

    @app.post(LOOKUP, responses=REFUSED)
    async def lookup(questions: LookupRequest) -> LookupResponse:
        """Many questions, one answer each, all from one snapshot."""
        raise NotImplementedError

    @app.get("/v1/configs/{kernel}", responses=REFUSED)
    async def config(
        kernel: Name,
        chip: str,
        jax: str,
        jaxlib: str,
        libtpu: str,
        shape: str,
        dtype: str | None = None,
        fingerprint: str | None = None,
        snapshot: SnapshotName | None = None,
    ) -> ConfigResponse:
        """One question; ``option=name=value`` may be given several times."""
        raise NotImplementedError


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:]) or "body"
    return Refusal(422, "invalid_field", f"{field}: {first['msg']}", field).response(request.scope)


async def _other(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    answer = Refusal(error.status_code, code, str(error.detail)).response(request.scope)
    answer.headers.update(error.headers or {})
    if error.status_code == 405:  # the route that refused knows its own methods only
        answer.headers["Allow"] = ", ".join(sorted(_methods(request)))
    return answer


def _methods(request: Request) -> set[str]:
    found = [route for route in request.app.routes if isinstance(route, Route)]
    here = (route for route in found if route.matches(request.scope)[0] != Match.NONE)
    return {method for route in here for method in route.methods or ()}
