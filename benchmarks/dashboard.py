"""How long does each page take, with a thousand and with a million trials?

    python -m benchmarks dashboard [--database postgresql] [--trials 1000000] [--each 99]
        [--repeats 15]

Fills a SQLite file, or a real PostgreSQL, starts a real server, and asks for each page as a browser
does.
One key has 10,000 trials, the most that one tuning request may ask for, all others 99 each: 10,001
problems; with ``--each 40``, as many as a search has by itself, 24,751. Every second one has a
record, each a job and a check, a model runs 500 of them, and as many are missing. Medians of wall
clock, and of the processor time of the server and of PostgreSQL, which depends less on what else
the machine does: exit code 1 when that exceeds 200 ms, or a page 150 kB as sent or 2 MB unpacked.
"""

import argparse
import gzip
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from sqlalchemy import Connection, Table, text

from autotune.domain.explanation import PARTS, Explanation
from autotune.domain.job import Request
from autotune.domain.key import Chip, KernelSpec, Key, Toolchain
from autotune.domain.outcome import Estimate, Estimated, OutOfVmem
from autotune.domain.problem import Config, Problem, ProblemSpec
from autotune.domain.record import Check, CheckVerdict, Evidence, Method, Record, Trial
from autotune.domain.workload import TunedEntry, TunedWorkload
from autotune.estimating.simulator import MODEL
from autotune_db import open_store
from autotune_db.checks import save_check
from autotune_db.jobs import queue
from autotune_db.query import key_ids, sum_up
from autotune_db.rows import key_values, record_values, trial_values
from autotune_db.tables import KEYS, RECORDS, TRIALS
from benchmarks.harness.postgres import Postgres, postgres_server

MOST_MS, MOST_BYTES, MOST_SENT = 200.0, 2_000_000, 150_000
KERNELS, CHIPS = 20, (Chip.V5E, Chip.V5P, Chip.V6E, Chip.V7X)
LARGEST, SNAPSHOTS, IN_MODEL = 10_000, 200, 500
Working = Callable[[], list[psutil.Process]]
Spent = dict[psutil.Process, float]
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
TOOLCHAINS = tuple(Toolchain(jax=v, jaxlib=v, libtpu="0.0.42") for v in ("0.10.2", "0.12.0"))
BLOCKS = (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
ORDERS = (("m", "n", "k"), ("n", "m", "k"))


def config(number: int) -> Config:
    sizes = [BLOCKS[number // 10**place % 10] for place in range(3)]
    return Config(
        axes=tuple(zip(("block_m", "block_k", "block_n"), sizes, strict=True)),
        grid_order=ORDERS[number // 1000 % 2],
        dimension_semantics=("parallel", "parallel", "arbitrary"),
        vmem_limit_bytes=None if number < 2000 else (16 + number // 2000) << 20,
    )


def estimate(number: int) -> Estimate:
    time_us = 100.0 + (number * 7919) % 10_007
    share = time_us / len(PARTS)
    explained = Explanation(
        parts_us=tuple((part, share) for part in PARTS),
        roofline_us=90.0,
        mxu_us=60.0,
        steps=64,
        dma_count=129,
        burst_bytes=4096,
        least_hbm_bytes=1 << 20,
        vmem=(("args[0]", 1 << 20), ("args[1]", 1 << 20), ("outputs", 1 << 20)),
        spill_bundles=0,
    )
    return Estimate(
        time_us=time_us,
        compute_us=share,
        memory_us=share,
        overhead_us=share,
        fill_us=share,
        limited_by="compute",
        model=MODEL,
        vmem_allowed_bytes=16 << 20,
        vmem_used_bytes=(1 + number % 15) << 20,
        hbm_bytes=50_000_000 + number,
        flops=2 * 10**10,
        error=0.05,
        resolution=0.03,
        explanation=explained,
    )


def trial(number: int) -> Trial:
    fails = number % 10 == 9
    outcome = (
        OutOfVmem(reason="needs 32 MiB", used_bytes=32 << 20, allowed_bytes=16 << 20)
        if fails
        else Estimated(estimate=estimate(number), program=f"{number:016x}")
    )
    at = NOON + timedelta(seconds=number)
    return Trial(number=number, config=config(number), outcome=outcome, seconds=1.0, created_at=at)


def spec(kernel: int) -> KernelSpec:
    problems = ProblemSpec(dims=("m", "k", "n"), dtypes=("bfloat16",))
    axes = ("block_m", "block_k", "block_n")
    return KernelSpec(
        name=f"kernel_{kernel}",
        fingerprint="f00d",
        problems=problems,
        axes=axes,
        grid=("m", "n", "k"),
    )


def key(number: int) -> Key:
    dims = (("m", 128 * (1 + number // (KERNELS * 8))), ("k", 4096), ("n", 4096))
    return Key(
        kernel=f"kernel_{number % KERNELS}",
        fingerprint="f00d",
        problem=Problem(dims=dims, dtype="bfloat16"),
        chip=CHIPS[number // KERNELS % 4],
        toolchain=TOOLCHAINS[number // (KERNELS * 4) % 2],
    )


def record(of: Key) -> Record:
    return Record(
        key=of,
        config=config(17),
        estimate=estimate(17),
        default=Evidence(config=config(0), time_us=5000.0),
        baseline=Evidence(config=None, time_us=80.0, expected_us=120.0),
        is_default=False,
        reason="faster",
        verification="two cores",
        verified=True,
        trials=100,
        method=Method.ESTIMATED,
        created_at=NOON,
    )


def fill(database: str, trials: int, each: int) -> None:
    """The first key is the largest one; all others share the same ``each`` trials."""
    largest = min(LARGEST, trials // 2)
    keys = 1 + (trials - largest) // each
    rows = [trial_values(trial(number)) for number in range(largest)]
    published = range(0, keys, 2)
    with open_store(database, create=True) as store:
        for number in range(KERNELS):
            store.save_kernel(spec(number))

        def in_bulk(connection: Connection) -> None:
            insert(connection, KEYS, (key_values(key(n)) for n in range(keys)))
            trials = (
                {**row, "key_id": n + 1}
                for n in range(keys)
                for row in (rows if n == 0 else rows[:each])
            )
            insert(connection, TRIALS, trials)
            bulk = (
                {**record_values(record(key(n))), "key_id": n + 1} for n in published[:-SNAPSHOTS]
            )
            insert(connection, RECORDS, bulk)
            sum_up(connection, range(1, keys + 1))

        store._work.write(lambda connection, _: in_bulk(connection))
        last = published[-SNAPSHOTS:]
        for number in range(SNAPSHOTS):
            store.save_record(record(key(last[number % len(last)])))
        wanted = {(replace(key(n), fingerprint="new"), "default"): n for n in range(1, keys)}
        store.save_misses(wanted)
        model = [TunedEntry(key=key(n), weight=n % 48 + 1, before_us=5000.0) for n in range(keys)]
        store.workloads.save(TunedWorkload(name="model", entries=tuple(model[:IN_MODEL])))
        store._work.write(lambda connection, _: beside(connection, keys))
        if database.startswith(
            "postgresql"
        ):  # autovacuum does it in time, SQLite is never asked to
            store._work.write(lambda connection, _: connection.execute(text("ANALYZE")))


def beside(connection: Connection, keys: int) -> None:
    """A job and a check for each key."""
    elsewhere = Toolchain(jax="0.13.0", jaxlib="0.13.0", libtpu="0.0.44")
    won = Estimated(estimate=estimate(17), program="p")
    targets = [replace(key(n), toolchain=elsewhere) for n in range(keys)]
    ids = key_ids(connection, [*map(key, range(keys)), *targets])
    for n, target in enumerate(targets):
        of = key(n)
        request = Request(kernel=of.kernel, problem=of.problem, chip=of.chip, trials=n + 1)
        queue(connection, request, "ci", NOON + timedelta(seconds=n))
        check = Check(
            key=of,
            config=config(17),
            toolchain=elsewhere,
            chip=of.chip,
            verdict=list(CheckVerdict)[n % len(CheckVerdict)],
            checked_at=NOON + timedelta(seconds=n * 7919 % 10_007),
            winner=won,
            before_us=100.0,
            after_us=101.0,
            least_limit_bytes=32 << 20,
        )
        save_check(connection, check, ids[of], ids[target])


def insert(connection: Connection, table: Table, rows: Iterator[dict[str, Any]]) -> None:
    while part := list(islice(rows, 5_000)):
        connection.execute(table.insert(), part)


@contextmanager
def served(database: str) -> Iterator[tuple[int, psutil.Process]]:
    """A real server, and its port."""
    command = [sys.executable, "-m", "autotune", "serve", "--port", "0"]
    command += ["--db", database, "--reads-per-second", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            yield _port(server), psutil.Process(server.pid)
        finally:
            server.terminate()


def _port(server: subprocess.Popen[str]) -> int:
    assert server.stderr is not None
    for line in server.stderr:
        message = json.loads(line)["message"]
        if "running on http" in message:
            return int(message.partition("127.0.0.1:")[2].split()[0])
    raise SystemExit("the server did not start")


def ask(port: int, path: str) -> tuple[float, int, int]:
    """Milliseconds, bytes as sent, bytes unpacked."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    start = time.perf_counter()
    connection.request("GET", path, headers={"Accept": "text/html", "Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    ms = (time.perf_counter() - start) * 1e3
    assert answer.status == 200, (path, answer.status)
    connection.close()
    packed = answer.getheader("content-encoding") == "gzip"
    return ms, len(body), len(gzip.decompress(body)) if packed else len(body)


PAGES = {
    "overview": "/",
    "problems": "/problems",
    "problems, found": "/problems?q=m%3D256+v5e+0.12",
    "problems, many found": "/problems?q=kernel",
    "problems, none found": "/problems?q=nothing+at+all",
    "problems, by size": "/problems?q=256x4096x4096",
    "problems, by gain": "/problems?order=-gain",
    "problems, by XLA": "/problems?order=xla",
    "problems, by trials": "/problems?order=-trials",
    "problems, limited": "/problems?q=gain+%3E+1.1+chip%3Av6e",
    "problems, unpublished": "/problems?state=unpublished",
    "problems, last page": "/problems?page=100000",
    "jobs": "/jobs",
    "jobs, by kernel": "/jobs?order=-kernel",
    "jobs, last page": "/jobs?order=state&page=200",
    "snapshots": "/snapshots?from=100&to=200",
    "compare": "/compare?key=1&key=2&trial=500",
    "most wanted": "/misses",
    "wanted, by time": "/misses?order=-last&page=100",
    "upgrades": "/upgrades",
    "upgrades, by kernel": "/upgrades?order=kernel&page=100",
    "workload": "/workloads/model",
    "workload, by gain": "/workloads/model?order=-times",
    "states": "/states",
    "kernel": "/kernels/kernel_0",
    "kernel, last page": "/kernels/kernel_0?page=10",
    "kernel, filtered": "/kernels/kernel_0?chip=v5e&toolchain=0.10.2,0.10.2,0.0.42",
    "problem, largest": "/keys/1",
    "problem, last trials": "/keys/1?page=200",
    "problem, fastest": "/keys/1?order=time",
    "problem, by a part": "/keys/1?order=-block_k&is.block_m=256",
    "problem, one outcome": "/keys/1?kind=out+of+VMEM",
    "problem": "/keys/2",
    "toolchains": "/toolchains/1",
    "trial": "/trials/500",
}


class Page(NamedTuple):
    """``sent`` and unpacked ``size`` in bytes."""

    ms: float
    processor_ms: float
    sent: int
    size: int


def measured(trials: int, each: int, repeats: int, postgres: Postgres | None) -> dict[str, Page]:
    with tempfile.TemporaryDirectory() as folder:
        database = postgres.new_database() if postgres else str(Path(folder) / "dashboard.db")
        start = time.perf_counter()
        fill(database, trials, each)
        print(f"{trials:,} trials: filled in {time.perf_counter() - start:.0f} s")
        with served(database) as (port, server):

            def working() -> list[psutil.Process]:
                """PostgreSQL has a process for each connection."""
                children = psutil.Process(postgres.pid).children() if postgres else []
                return [server, *children]

            return {name: _page(port, working, path, repeats) for name, path in PAGES.items()}


def _page(port: int, working: Working, path: str, repeats: int) -> Page:
    answers, spent = [], [processor_s(working)]
    for _ in range(repeats):
        answers.append(ask(port, path))
        spent.append(processor_s(working))
    return Page(
        ms=statistics.median(ms for ms, *_ in answers),
        processor_ms=1e3 * statistics.median(between(*both) for both in pairwise(spent)),
        sent=answers[-1][1],
        size=answers[-1][2],
    )


def processor_s(working: Working) -> Spent:
    """Without what has ended meanwhile."""
    spent: Spent = {}
    for process in working():
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent[process] = times.user + times.system
    return spent


def between(before: Spent, after: Spent) -> float:
    """Of the processes that were there both times."""
    return sum(after[process] - before[process] for process in before.keys() & after.keys())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--each", type=int, default=99, help="trials of each problem but one")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    given = parser.parse_args()
    with ExitStack() as stack:
        is_sqlite = given.database == "sqlite"
        postgres = None if is_sqlite else stack.enter_context(postgres_server())
        few, many = (
            measured(n, given.each, given.repeats, postgres) for n in (1_000, given.trials)
        )
    columns = ("1,000 trials", f"{given.trials:,} trials", "processor", "sent", "unpacked")
    print(f"{'page':22}" + "".join(f"{column:>18}" for column in columns))
    for name, page in many.items():
        times = f"{few[name].ms:15.1f} ms{page.ms:15.1f} ms{page.processor_ms:15.1f} ms"
        print(f"{name:22}{times}{page.sent / 1e3:15.1f} kB{page.size / 1e3:15.1f} kB")
    slow = [name for name, page in many.items() if page.processor_ms > MOST_MS]
    large = [n for n, page in many.items() if page.size > MOST_BYTES or page.sent > MOST_SENT]
    for name in slow:
        print(f"{name} takes more than {MOST_MS:g} ms of processor time")
    for name in large:
        print(f"{name} ships more than {MOST_SENT / 1e3:g} kB, or {MOST_BYTES / 1e6:g} MB unpacked")
    return 1 if slow or large else 0
