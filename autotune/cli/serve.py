"""``autotune serve``: the HTTP service."""

import logging
import os
from importlib.util import find_spec

import click

from autotune.cli.parts import database_option, open_database, own_package
from autotune.errors import AutotuneError


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8700, show_default=True, type=click.IntRange(0, 65535))
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 64))
@database_option
def serve(host: str, port: int, workers: int, database: str | None) -> None:
    """Answer lookups over HTTP. It only reads; anyone who reaches the port may ask."""
    for name in ("fastapi", "uvicorn"):
        if find_spec(name) is None:
            raise AutotuneError(f"{name} is not installed: pip install 'pallas-autotune[serve]'")
    import uvicorn

    own_package("service")
    open_database(database, create=False).close()  # says at once what is wrong with it
    if database:
        os.environ["AUTOTUNE_DATABASE_URL"] = database
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    uvicorn.run(
        "service.app:from_environment", factory=True, host=host, port=port, workers=workers,
        access_log=False, log_level="warning" if workers == 1 else "info",
    )  # fmt: skip
