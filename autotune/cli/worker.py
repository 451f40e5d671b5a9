"""``autotune worker``: runs the tuning jobs of a database."""

import logging
import os
import signal
import socket
from types import FrameType

import click

from autotune.cli.parts import (
    compiler_options,
    database_option,
    json_option,
    new_pool,
    open_database,
    print_json,
)


@click.command()
@click.option(
    "--name", default=None, help="What it is called in jobs; the process number is added."
)
@click.option("--drain", is_flag=True, help="Stop when there is nothing to do.")
@click.option(
    "--poll", default=2.0, show_default=True, metavar="SECONDS",
    type=click.FloatRange(0.05, 3600), help="How often a new job is looked for.",
)  # fmt: skip
@click.option(
    "--lease", default=60.0, show_default=True, metavar="SECONDS", type=click.FloatRange(1, 3600),
    help="After so long without a sign of life a worker's job is given to another.",
)  # fmt: skip
@compiler_options
@database_option
@json_option
def worker(
    name: str | None, drain: bool, poll: float, lease: float, database: str | None, as_json: bool,
    compilers: int, candidate_timeout: float, candidate_memory: float, python: str,
) -> None:  # fmt: skip
    """Run tuning jobs (POST /v1/jobs) with the kernels of the catalogue, until it is stopped.

    Ctrl-C and SIGTERM give the job back when what is being compiled is done; a second one stops at
    once. Another worker goes on where this one was.
    """
    from autotune.catalogue import KernelRef, catalogue
    from autotune.search.worker import Worker

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    refs = {kernel: ref for kernel, ref in catalogue().items() if isinstance(ref, KernelRef)}
    own_name = f"{name or socket.gethostname()}-{os.getpid()}"
    with (
        open_database(database, create=True) as store,
        new_pool(compilers, candidate_timeout, candidate_memory, python) as pool,
    ):
        one = Worker(
            pool, store, store.jobs, refs, name=own_name, study_url=store.url, lease_s=lease,
            poll_s=poll,
        )  # fmt: skip
        _stop_gently(one.stop)
        done = one.run(drain=drain)
    if as_json:
        print_json({"worker": own_name, "jobs": done})
    else:
        click.echo(f"{done} jobs were run")


def _stop_gently(stop: object) -> None:
    assert callable(stop)

    def first(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.default_int_handler)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, first)
