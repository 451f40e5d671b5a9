"""How long do commands and writes take at a million trials and 100,000 records?

    python -m benchmarks large [--database postgresql] [--trials 1000000] [--records 100000]

Trials are saved as a search saves a batch of them, 40 of a key at once; records are pushed, 1,000
at once. Each command is a process of its own, its start included. *Import* is a push of the bundle
that *export* wrote into an empty database, as the service takes it in.
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
from rich.table import Table

from autotune.answering.bundle import read_bundle
from autotune.domain.record import Check, CheckVerdict, Record
from autotune.domain.store import KeyResult
from autotune_db import SqlStore, open_store
from benchmarks.dashboard import KERNELS, NOON, key, record, spec, trial
from benchmarks.harness.postgres import postgres_server

_EACH, _AT_ONCE, _CHECKS = 40, 1_000, 1_000
_console = Console(width=120)


class Spent(NamedTuple):
    seconds: float
    processor_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--records", type=int, default=100_000)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = [str(folder / "large.db"), str(folder / "other.db")]
        if options.database == "postgresql":
            server = stack.enter_context(postgres_server())
            urls = [server.new_database(), server.new_database()]
        load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        title = f"{options.trials:,} trials, {options.records:,} records, {options.database}"
        table = Table("what", "seconds", "processor s", "a second", title=f"{title}; {load}")
        for name, spent, count in _measured(urls, options, folder):
            rate = f"{count / spent.seconds:,.0f}" if count else ""
            table.add_row(name, f"{spent.seconds:.2f}", f"{spent.processor_s:.2f}", rate)
            _console.print(name, f"{spent.seconds:.2f} s", rate)
        _console.print(table)


def _measured(
    urls: list[str], options: argparse.Namespace, folder: Path
) -> Iterator[tuple[str, Spent, int]]:
    trials, records = options.trials, options.records
    with open_store(urls[0], create=True) as store:
        for number in range(KERNELS):
            store.save_kernel(spec(number))
        yield "save trials", _timed(lambda: _save_trials(store, trials)), trials
        made = map(record, map(key, range(records)))
        yield "push records", _timed(lambda: _push(store, made)), records
        checks = [_check(number) for number in range(min(records, _CHECKS))]
        store.push_checks(checks, "")
        yield "list of checks", _timed(lambda: store.checks(50)), 0
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
        "nothing": ["--version"],
        "lookup": [*lookup, "--db", urls[0]],
        "history": ["history", "--db", urls[0]],
    }.items():
        yield name, min(_timed(lambda: _run(command)) for _ in range(3)), 0  # noqa: B023 (at once)
    yield "export", _timed(lambda: _run(["export", str(bundle), "--db", urls[0]])), records
    with open_store(urls[1], create=True) as other:
        for number in range(KERNELS):
            other.save_kernel(spec(number))
        yield "import", _timed(lambda: _push(other, iter(read_bundle(bundle).records))), records


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
    done = subprocess.run(
        [sys.executable, "-m", "autotune", *command], capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
