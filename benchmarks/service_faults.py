"""What do faults do to the service, while processes write and read?

    python -m benchmarks service_faults [--only WORDS] [--writers 2] [--readers 8]

Readers must be answered with 200, or with 503 and Retry-After; only while a process is dead may
they get no answer. Afterwards everything that was acknowledged must be there, once, each snapshot
must say what it said, and the service must take results without having been started again. Exit
code 1 when anything is not so. The full disk is a tmpfs of 48 MiB, which only root can mount: exit
code 2 where it cannot be mounted.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.harness.load.faults import (
    Fault,
    NoDiskError,
    Report,
    fill_disk,
    kill_all,
    kill_parent,
    kill_postgres,
    kill_process,
    lock_file,
    run_fault,
    small_disk,
)
from benchmarks.harness.load.jobs import kill_worker
from benchmarks.harness.postgres import postgres_server

_console = Console(width=150)
_FAULTS: dict[str, Fault | None] = {
    "a process of the service is killed": kill_process,
    "the whole service is killed": kill_all,
    "the parent of its processes is killed": kill_parent,
    "the SQLite file is locked": lock_file,
    "the disk is full": fill_disk,
    "PostgreSQL is killed": None,  # it is known when it has been started
    "a worker is killed in its job": kill_worker,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="faults with these words")
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--readers", type=int, default=8)
    options = parser.parse_args()
    _console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    try:
        reports = [_run(name, options) for name in _FAULTS if options.only in name]
    except NoDiskError as error:
        _console.print(str(error))
        return 2
    _console.print(_table(reports))
    wrong = [f"{report.name}: {line}" for report in reports for line in report.wrong]
    for line in wrong[:40]:
        _console.print(f"WRONG: {line}", style="red", highlight=False)
    _console.print(f"{len(wrong)} things are wrong" if wrong else "nothing was lost or doubled")
    return 1 if wrong else 0


def _run(name: str, options: argparse.Namespace) -> Report:
    with _place(name) as (folder, database, fault, environment):
        report = run_fault(
            name,
            fault,
            folder,
            database,
            writers=options.writers,
            readers=options.readers,
            environment=environment,
        )
    _console.print(f"{name}: {'WRONG' if report.wrong else 'ok'}")
    return report


@contextmanager
def _place(name: str) -> Iterator[tuple[Path, str, Fault, dict[str, str]]]:
    """A folder, a database, the fault, and what is special in the environment of the service."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        fault, database, environment = _FAULTS[name], str(folder / "faults.db"), {}
        if fault is fill_disk:
            disk = stack.enter_context(small_disk(folder))
            database, environment = str(disk / "faults.db"), {"TMPDIR": str(disk)}
        if fault is None:
            server = stack.enter_context(postgres_server())
            fault, database = partial(kill_postgres, server=server), server.new_database()
        yield folder, database, fault, environment


def _table(reports: list[Report]) -> Table:
    reads = "reads 200", "503", "none", "longest"
    pushes = "pushes 200", "503", "none", "acknowledged", "longest 503"
    table = Table("fault", *reads, *pushes, "seen")
    for report in reports:
        calls = [
            str(statuses.get(status, 0))
            for statuses in (report.reads, report.writes)
            for status in (200, 503, 0)
        ]
        table.add_row(
            report.name,
            *calls[:3],
            f"{report.longest_read_s * 1e3:.0f} ms",
            *calls[3:],
            str(report.acknowledged),
            f"{report.longest_refusal_s:.1f} s",
            "; ".join(report.notes),
        )
    return table
