"""How long do commands and writes take at a million trials and 100,000 records?

    python -m benchmarks large [--database postgresql] [--trials 1000000] [--records 100000]
        [--write]

Trials are saved as a search saves a batch of them, 40 of a key at once; records are pushed, 1,000
at once. Each command is a process of its own, its start included. *Taking them in* is a push of
the bundle that *export* wrote, as the service takes it in. PostgreSQL has fsync and autovacuum.
``--write`` puts the table into docs/results/service.md.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from autotune.answering.bundle import read_bundle
from autotune.domain.record import Check, CheckVerdict, Record
from autotune.domain.store import KeyResult
from autotune_db import SqlStore, open_store
from benchmarks.dashboard import KERNELS, NOON, key, record, spec, trial
from benchmarks.harness.documents import markdown_table, show
from benchmarks.harness.postgres import postgres_server

DATABASES = "sqlite", "postgresql"
_EACH, _AT_ONCE, _CHECKS = 40, 1_000, 1_000
_console = Console(width=120)


class Spent(NamedTuple):
    seconds: float
    processor_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--database", choices=DATABASES, action="append")
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--write", action="store_true", help="put it into the document, too")
    options = parser.parse_args()
    databases = options.database or DATABASES
    by_name: dict[str, list[str]] = {}
    for database in databases:
        for name, spent, count in _measured_on(database, options):
            _console.print(database, name, _text(spent, count))
            by_name.setdefault(name, []).append(_text(spent, count))
    table = markdown_table(["what", *databases], *([name, *row] for name, row in by_name.items()))
    load = f"{os.cpu_count()} cores that others used as well (load {os.getloadavg()[0]:.0f})"
    size = f"{options.trials:,} trials and {options.records:,} records on {load}"
    text = f"{size}: seconds of wall clock (and of the processors).\n\n{table}"
    show(text, "results/service.md", "large", write=options.write)


def _text(spent: Spent, count: int) -> str:
    rate = f", {count / spent.seconds:,.0f} a second" if count else ""
    return f"{spent.seconds:.2f} ({spent.processor_s:.2f}){rate}"


def _measured_on(database: str, options: argparse.Namespace) -> Iterator[tuple[str, Spent, int]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = [str(folder / "large.db"), str(folder / "other.db")]
        if database == "postgresql":
            server = stack.enter_context(postgres_server())
            server.as_installed()
            urls = [server.new_database(), server.new_database()]
        yield from _measured(urls, options, folder)


def _measured(
    urls: list[str], options: argparse.Namespace, folder: Path
) -> Iterator[tuple[str, Spent, int]]:
    trials, records = options.trials, options.records
    with open_store(urls[0], create=True) as store:
        for number in range(KERNELS):
            store.save_kernel(spec(number))
        yield "saving trials, 40 at once", _timed(lambda: _save_trials(store, trials)), trials
        made = map(record, map(key, range(records)))
        yield "pushing records, 1,000 at once", _timed(lambda: _push(store, made)), records
        checks = [_check(number) for number in range(min(records, _CHECKS))]
        store.push_checks(checks, "")
        yield "a list of checks", _timed(lambda: store.checks(50)), 0
    bundle = folder / "all.bundle"
    asked = key(records // 2)
    shape = ",".join(f"{name}={size}" for name, size in asked.problem.dims)
    versions = asked.toolchain
    lookup = ["lookup", asked.kernel, "--shape", shape, "--chip", asked.chip.value]
    lookup += [
        "--toolchain",
        f"jax={versions.jax},jaxlib={versions.jaxlib},libtpu={versions.libtpu}",
    ]
    for name, command in {
        "autotune --version": ["--version"],
        "autotune lookup": [*lookup, "--db", urls[0]],
        "autotune history": ["history", "--db", urls[0]],
    }.items():
        yield name, min(_timed(lambda: _run(command)) for _ in range(3)), 0  # noqa: B023 (at once)
    yield "autotune export", _timed(lambda: _run(["export", str(bundle), "--db", urls[0]])), records
    with open_store(urls[1], create=True) as other:
        for number in range(KERNELS):
            other.save_kernel(spec(number))
        yield (
            "taking them into an empty database",
            _timed(lambda: _push(other, iter(read_bundle(bundle).records))),
            records,
        )


def _save_trials(store: SqlStore, count: int) -> None:
    batch = [trial(number) for number in range(_EACH)]
    for number in range(count // _EACH):
        assert store.save_trials(key(number), batch) == _EACH


def _push(store: SqlStore, records: Iterator[Record]) -> None:
    results: list[KeyResult] = []
    for found in records:
        results.append(KeyResult(record=found))
        if len(results) == _AT_ONCE:
            store.push((), results, "")
            results = []
    store.push((), results, "")


def _check(number: int) -> Check:
    made = record(key(number))
    newer = replace(made.key.toolchain, jax="0.13.0", jaxlib="0.13.0")
    return Check(
        key=made.key,
        config=made.config,
        toolchain=newer,
        chip=made.key.chip,
        verdict=CheckVerdict.FASTER,
        checked_at=NOON,
    )


def _timed(work: Callable[[], object]) -> Spent:
    begun, used = time.perf_counter(), _processor_s()
    work()
    return Spent(time.perf_counter() - begun, _processor_s() - used)


def _processor_s() -> float:
    """Of this process and the commands that it has run."""
    return sum(os.times()[:4])


def _run(command: list[str]) -> None:
    """With bytecode on disk, as where the package is installed."""
    folder = Path(tempfile.gettempdir(), "autotune-bytecode")
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-m", "autotune", *command],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
