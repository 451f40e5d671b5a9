"""``autotune worker``: runs the tuning jobs of a database."""

import logging
import os
import signal
import socket
from pathlib import Path
from types import FrameType
from typing import Any

import click

from autotune.cli import shared
from autotune.domain.compilers import Compilers
from autotune.domain.job import LEASE_S, LEAST_LEASE_S, MOST_LEASE_S
from autotune.domain.key import KernelRef
from autotune.domain.record import Record
from autotune.domain.store import Rechecked
from autotune.wording.output import PlainFormatter
from autotune.wording.units import counted

_TIMEOUT_S = 60.0  # of one call to a service


@click.command()
@click.option("--name", help="What it is called in jobs; the process number is added.")
@shared.flag_option("--drain", help="Stop when there is nothing to do.")
@shared.default_option(
    "--poll",
    default=2.0,
    metavar="SECONDS",
    type=click.FloatRange(0.05, 3600),
    help="How often a new job is looked for.",
)
@shared.default_option(
    "--lease",
    default=LEASE_S,
    metavar="SECONDS",
    type=click.FloatRange(LEAST_LEASE_S, MOST_LEASE_S),
    help="After so long without a sign of life the job of this worker is given to another.",
)
@click.option("--url", metavar="URL", help="Take the jobs of this service instead.")
@click.option(
    "--token",
    envvar="AUTOTUNE_TOKEN",
    help="For --url, with the role writer; better in $AUTOTUNE_TOKEN, where others do not see it.",
)
@click.option(
    "--alive",
    envvar="AUTOTUNE_WORKER_ALIVE",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Touch this file whenever the queue has answered: for a health check.",
)
@shared.compiler_options
@shared.measuring_options
@shared.database_and_json
def worker(
    name: str | None,
    drain: bool,
    poll: float,
    lease: float,
    url: str | None,
    token: str | None,
    alive: Path | None,
    database: str | None,
    as_json: bool,
    python: str,
    measure: bool,
    device: int,
    measure_seconds: float,
    **compilers: Any,
) -> None:
    """Run tuning jobs (POST /v1/jobs) with the kernels of the catalogue, until it is stopped.

    Jobs come from the database. With --url they come from a service, which is sent the results;
    the database is then this machine's own.

    Workers with the database of a service also check what was pushed to it. What they confirm is
    proven; what they refuse is in no later snapshot.

    Ctrl-C and SIGTERM give the job back when what is being compiled is done; a second one stops at
    once. Another worker goes on where this one was. Where a TPU of a job's generation is attached,
    its finalists are timed, as by `autotune search`.
    """
    from autotune.answering.http import Remote
    from autotune.answering.push import RemoteJobs
    from autotune.cli.job_watch import JobWatch
    from autotune.declaring.discovery import installed_kernels
    from autotune.publishing.jobs.worker import Worker
    from autotune.publishing.task import Plan, Timing

    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    refs = installed_kernels()
    own_name = f"{name or socket.gethostname()}-{os.getpid()}"
    timing = Timing(device=device, seconds=measure_seconds) if measure else None
    with (
        shared.open_database(database, create=True) as store,
        shared.new_pool(**compilers, python=python, silent=True) as pool,
    ):
        jobs = store.jobs if url is None else RemoteJobs(Remote(url, _TIMEOUT_S, token), store)
        worker = Worker(
            pool,
            store,
            jobs,
            refs,
            name=own_name,
            watching=JobWatch,
            lease_s=lease,
            poll_s=poll,
            plan=Plan(timing=timing, python=python),
            answered=alive.touch if alive else lambda: None,
            recheck=_recheck if url is None else None,
        )

        def first(number: int, _: FrameType | None) -> None:
            signal.signal(number, signal.default_int_handler)
            worker.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, first)
        done = worker.run(drain=drain)
    shared.print_result(
        {"worker": own_name, "jobs": done}, f"ran {counted(done, 'job')}", as_json=as_json
    )


def _recheck(compilers: Compilers, record: Record, ref: KernelRef, by: str) -> Rechecked:
    from autotune.publishing.checking.record_check import recheck
    from autotune.wording.publication import rechecked_in_words

    return rechecked_in_words(recheck(compilers, record, ref, by))
