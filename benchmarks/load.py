"""What does load do to the service?

    python -m benchmarks load [--seconds 60] [--writers 8] [--readers 64] [--database both]

``autotune serve`` with two processes on a fresh database, eight processes that push and 64
connections that read. Afterwards: was every call answered, is
everything that was acknowledged there, once, and does each snapshot say what it said before? Exit
code 1 when anything is not so.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness.load.check import Check, check_database, check_lookups, check_snapshots
from benchmarks.harness.load.service import Load, Service, prepare
from benchmarks.harness.postgres import postgres_server


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--readers", type=int, default=64)
    parser.add_argument("--pause", type=float, default=0.01, help="of a reader between two calls")
    parser.add_argument("--database", choices=("sqlite", "postgresql", "both"), default="both")
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    kinds = ("sqlite", "postgresql") if options.database == "both" else (options.database,)
    return 1 if sum(one(kind, options) for kind in kinds) else 0


def one(kind: str, options: argparse.Namespace) -> int:
    """The number of violations with one kind of database."""
    with tempfile.TemporaryDirectory(prefix="load-") as name, database(kind, Path(name)) as url:
        folder = Path(name)
        secret, service = prepare(url), Service(url, folder)
        service.start()
        try:
            print(
                f"{kind}: {options.writers} writers, {options.readers} readers, "
                f"{options.seconds:g} s, two processes"
            )
            with Load(
                service,
                secret,
                folder,
                seconds=options.seconds,
                writers=options.writers,
                readers=options.readers,
                pause_s=options.pause,
            ) as load:
                writers, readers = load.finish()
            checks = {
                "calls": calls(writers, readers, options.seconds),
                "database": check_database(url, writers),
                "lookups": check_lookups(service, url, writers),
                "snapshots": check_snapshots(service, readers["seen"]),
            }
        finally:
            service.stop()
    for title, check in checks.items():
        counted = ", ".join(f"{count:,} {what}" for what, count in check.counts.items())
        print(f"  {title:<10} {'ok   ' if not check.wrong else 'WRONG'}  {counted}")
        for line in check.wrong[:10]:
            print(f"    WRONG: {line}")
    return sum(len(check.wrong) for check in checks.values())


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield str(folder / "load.db")
        return
    with postgres_server() as server:
        yield server.new_database()


def calls(writers: list[dict[str, Any]], readers: dict[str, Any], seconds: float) -> Check:
    """Whether all were answered; prints how fast."""
    writes = [s for writer in writers for s in writer["seconds"]]
    reads = [s for kind in readers["seconds"].values() for s in kind]
    lookups = [s for kind, times in readers["seconds"].items() for s in times if kind in _LOOKUPS]
    for title, times in (("writes", writes), ("reads", reads), ("  of these lookups", lookups)):
        ordered = sorted(times)
        p50, p99, most = (ordered[int((len(times) - 1) * part)] * 1e3 for part in (0.5, 0.99, 1))
        print(
            f"  {title:<18} {len(times) / seconds:8,.1f}/s   p50 {p50:7.1f} ms   "
            f"p99 {p99:7.1f} ms   longest {most:7.1f} ms"
        )
    check = Check(counts={"reads": len(reads), "writes": len(writes)})
    failed = [*readers["failures"], *(f for writer in writers for f in writer["failures"])]
    check.counts["not answered"] = sum(not status for _, status, _, _ in failed)
    check.counts["refused"] = sum(bool(status) for _, status, _, _ in failed)
    if failed:
        check.wrong.append(f"calls that failed, by status: {_by_status(failed)}")
    check.wrong += readers["wrong"]
    return check


_LOOKUPS = ("batch", "single", "new key")


def _by_status(failed: list[Any]) -> dict[int, int]:
    statuses = [status for _, status, _, _ in failed]
    return {status: statuses.count(status) for status in sorted(set(statuses))}
