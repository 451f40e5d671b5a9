"""The application: its middlewares, its routes, and what answers its errors."""

from collections.abc import Callable
from functools import cache

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Mount, Router

from autotune.domain.version import VERSION
from autotune_db import SqlStore, open_store
from autotune_service.api import configs, lookup, queue, reading, writing
from autotune_service.dependencies import BEARER
from autotune_service.errors import (
    HttpError,
    answer_framework_error,
    answer_http_error,
    answer_invalid,
)
from autotune_service.lifespan import lifespan_with
from autotune_service.middleware.access import AccessMiddleware, LimitsMiddleware
from autotune_service.middleware.answers import HeadMiddleware, SafeHeadersMiddleware
from autotune_service.middleware.body import BodyMiddleware
from autotune_service.middleware.calls import CallsMiddleware, ErrorMiddleware, answer_bug
from autotune_service.middleware.hosts import HostsMiddleware, allowed_hosts
from autotune_service.middleware.metrics import CallMeter
from autotune_service.pages.exports import exports
from autotune_service.pages.live import live
from autotune_service.pages.routes import router as pages
from autotune_service.pages.static_files import assets
from autotune_service.settings import Settings

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
        routes=[
            *lookup.routes,
            Mount("/", _api(chosen.closed)),
        ],  # what FastAPI does for a call is not for a lookup
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
        middleware=[Middleware(HeadMiddleware), Middleware(SafeHeadersMiddleware)],
        exception_handlers={
            HttpError: answer_http_error,
            RequestValidationError: answer_invalid,
            HTTPException: answer_framework_error,
            Exception: answer_bug,
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
    _build_routes(api)
    return api


def _build_routes(api: FastAPI) -> None:
    """FastAPI would do it at the first call, which all others would wait for."""
    for route in api.routes:
        route.matches({"type": "http", "method": "GET", "path": "", "headers": []})


def _middleware(meter: CallMeter, settings: Settings) -> list[Middleware]:
    """From the outermost to the innermost."""
    hosts = allowed_hosts(settings)
    return [
        Middleware(CallsMiddleware, meter, settings.log),
        Middleware(ErrorMiddleware),
        *([Middleware(HostsMiddleware, hosts)] if hosts is not None else []),
        Middleware(AccessMiddleware),
        Middleware(LimitsMiddleware, settings.reads_per_second, settings.writes_per_second),
        Middleware(BodyMiddleware),
    ]
