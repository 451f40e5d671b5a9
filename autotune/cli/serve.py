"""``autotune serve``: the HTTP service."""

import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from autotune.cli.shared import database_option, open_database
from autotune.domain.errors import AutotuneError
from autotune.wording.output import echo
from autotune.wording.publication import claims_wait
from autotune_service.settings import Settings, flag_of, from_environment, options, to_environment


def _setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for setting in reversed(fields(Settings)):
        kind, flag = type(setting.default), flag_of(setting)
        flag += f"/--no-{flag[2:]}" if kind is bool else ""
        shown = f"{setting.metadata['about']}  [default: {setting.default}]"
        command = click.option(flag, setting.name, type=kind, default=None, help=shown)(command)
    return command


@click.command()
@_setting_options
@database_option
def serve(database: str | None, **given: Any) -> None:
    """Answer lookups over HTTP, and take what is pushed with a token.

    Each flag can be given by the environment: --reads-per-second as
    AUTOTUNE_SERVICE_READS_PER_SECOND.
    """
    for name in ("fastapi", "jinja2", "prometheus_client", "pythonjsonlogger", "uvicorn"):
        if find_spec(name) is None:
            from autotune.compiling.environments.packages import pip_install

            raise AutotuneError(f"{name} is not installed: {pip_install('serve')}")
    settings = from_environment(**given)
    if settings.migrate:
        from autotune_db import upgrade

        upgrade(database)
    with open_database(database, create=False) as store:  # says at once what is wrong with it
        claims = 0 if settings.trust_writers else store.count_claims()
    if claims:
        echo(claims_wait(claims), err=True)
    if database:
        os.environ["AUTOTUNE_DATABASE_URL"] = database
        os.environ.pop("AUTOTUNE_DATABASE_URL_FILE", None)
    _check_port(settings.host, settings.port)
    os.environ.update(to_environment(settings))
    with tempfile.TemporaryDirectory(prefix="autotune-metrics-", dir=_memory()) as folder:
        if settings.workers > 1:  # before the library is imported
            os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", folder)
        import uvicorn

        uvicorn.run(
            "autotune_service.app:app_of_process",
            factory=True,
            workers=settings.workers,
            log_config=None,
            **options(settings),
        )


def _check_port(host: str, port: int) -> None:
    """Else each process of the server would say so in its log, and begin again."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise AutotuneError(
            f"{host} port {port} cannot be listened on: {error.strerror}. Name another with --host "
            "or --port, or stop what uses it"
        ) from error


def _memory() -> str | None:
    """Where files are in memory, if there is such a place. The processes share their metrics in
    mapped files: where the disk is full, a process that touches a new page of one is killed."""
    place = Path("/dev/shm")  # noqa: S108 (a folder of our own is made in it)
    return str(place) if place.is_dir() and os.access(place, os.W_OK) else None
