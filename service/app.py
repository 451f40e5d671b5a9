"""The application: reading only, for now. Results are written by ``autotune search``."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from autotune import __version__
from autotune.errors import StoreError
from autotune.ports import Store
from db import SqlStore, open_store
from service.configs import OneConfig
from service.held import Held
from service.lookup import Lookup
from service.missed import Missed
from service.refusal import Refusal, answer_refusal
from service.routes import REFUSED, outside, router
from service.schema import ConfigResponse, LookupRequest, LookupResponse

_log = logging.getLogger("autotune.service")

REFRESH_S = 1.0
LOOKUP = "/v1/lookup"
_DOC = "Tuned block shapes of JAX Pallas TPU kernels. This service only reads."


class Service(FastAPI):
    """FastAPI, but for the busiest route, which answers ahead of all that FastAPI does."""

    lookup: Lookup | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hot = scope["type"] == "http" and scope["path"] == LOOKUP and scope["method"] == "POST"
        if hot and self.lookup is not None:
            try:
                await self.lookup(scope, receive, send)
            except Exception:
                _log.exception("a lookup failed")
                refusal = Refusal(500, "bug", "this is a bug of the service: see its log")
                await refusal.response()(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(
    database_url: str | None = None, *, refresh_s: float = REFRESH_S,
    opened: Callable[[], Store] | None = None,
) -> Service:  # fmt: skip
    """``refresh_s``: how often a newer snapshot is looked for and misses are written. The database
    is opened when the application starts: ``StoreError`` then, where there is none. ``opened``
    brings another store."""

    @asynccontextmanager
    async def lifespan(app: Service) -> AsyncIterator[None]:
        store = opened() if opened else open_store(database_url, create=False)
        held, missed = Held(store), Missed(store)
        await held.load()
        app.state.store, app.state.held, app.state.database_ok = store, held, True
        app.lookup = Lookup(held, missed)
        one = OneConfig(held, missed).__call__  # ahead of the route that describes it
        app.router.routes.insert(0, Route("/v1/configs/{kernel}", one, methods=["GET"]))
        task = asyncio.create_task(_look_after(app, held, missed, refresh_s))
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await missed.write()
        if isinstance(store, SqlStore):
            store.close()

    app = Service(
        title="pallas-autotune", version=__version__, description=_DOC, lifespan=lifespan,
        docs_url=None, redoc_url=None,
    )  # fmt: skip
    _describe_hot_routes(app)
    app.include_router(router)
    app.include_router(outside)
    app.add_exception_handler(Refusal, answer_refusal)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _other)
    return app


def from_environment() -> Service:
    """For servers that start several processes: the database is in ``AUTOTUNE_DATABASE_URL``."""
    return create_app(os.environ.get("AUTOTUNE_DATABASE_URL"))


async def _look_after(app: Service, held: Held, missed: Missed, refresh_s: float) -> None:
    while True:
        await asyncio.sleep(refresh_s)
        await missed.write()
        try:
            await held.refresh()
            app.state.database_ok = True
        except StoreError as error:
            if app.state.database_ok:
                _log.warning("answers come from memory: %s", error)
            app.state.database_ok = False
        except Exception:  # the service answers from memory whatever it was
            _log.exception("a newer snapshot could not be taken over")


def _describe_hot_routes(app: FastAPI) -> None:
    """For OpenAPI; the routes above answer first."""

    @app.post(LOOKUP, responses=REFUSED)
    async def lookup(questions: LookupRequest) -> LookupResponse:
        """Many questions, one answer each, all from one snapshot."""
        raise NotImplementedError

    @app.get("/v1/configs/{kernel}", responses=REFUSED)
    async def config(
        kernel: str, chip: str, jax: str, jaxlib: str, libtpu: str, shape: str,
        dtype: str | None = None, fingerprint: str | None = None, snapshot: str | None = None,
    ) -> ConfigResponse:  # fmt: skip
        """One question; ``option=name=value`` may be given several times."""
        raise NotImplementedError


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = str(first["loc"][-1])
    return Refusal(422, "invalid_field", f"{field}: {first['msg']}", field).response()


async def _other(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    return Refusal(error.status_code, code, str(error.detail)).response()
