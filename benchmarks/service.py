"""How fast is the service, beside a bare ASGI application and a Starlette route?

    python benchmarks/service.py [--seconds 3] [--rounds 5] [--many 100000]

One uvicorn process each, all with the same settings, answering bodies of the same size to the same
load generator (keep-alive connections of this process); rounds are interleaved. Then the client:
from the start of an interpreter to 100 configs, beside one that only imports urllib.request.
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune.bundle import read_bundle
from autotune.chip import Chip
from autotune.client import Client
from autotune.config import Config
from autotune.kernelspec import KernelSpec
from autotune.key import Key
from autotune.outcome import Estimate
from autotune.problem import Problem, ProblemSpec, problem_to_data
from autotune.toolchain import Toolchain
from autotune.trial import Evidence, Record

CONNECTIONS = 8
BATCH = 100
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = KernelSpec(
    name="matmul", fingerprint="0123456789ab", axes=("block_m",), grid=("m",),
    problems=ProblemSpec(dims=("m", "k", "n"), dtypes=("bfloat16",)), cuts=(("block_m", "m"),),
)  # fmt: skip


def sample(number: int) -> Record:
    """As large as those of a real search, each with a key of its own."""
    dims = (("m", 128 * (number % 1000 + 1)), ("k", 128 * (number // 1000 + 1)), ("n", 4096))
    estimate = Estimate(
        time_us=16.7, compute_us=12.3, memory_us=7.7, overhead_us=0.6, fill_us=3.7,
        limited_by="pipeline fill", model="schedule-3", vmem_used_bytes=3370000,
        vmem_allowed_bytes=16777216, hbm_bytes=6291456, flops=2147483648, error=0.06,
        notes=("a note as long as notes are in records of real searches",),
    )  # fmt: skip
    config = Config(axes=(("block_m", 128), ("block_k", 1024), ("block_n", 1024)),
                    grid_order=("m", "n", "k"), dimension_semantics=("parallel",) * 3)  # fmt: skip
    return Record(
        key=Key(kernel=SPEC.name, fingerprint=SPEC.fingerprint, chip=Chip.V5E,
                problem=Problem(dims=dims, dtype="bfloat16"),
                toolchain=Toolchain(jax="0.10.2", jaxlib="0.10.2", libtpu="0.0.42.1")),
        config=config, estimate=estimate, default=Evidence(config=config, time_us=181.3),
        baseline=Evidence(config=None, time_us=10.9, expected_us=20.1, note="a lower bound"),
        is_default=False, reason="estimated 10.84 times as fast as the default", verified=True,
        verification="interpret mode: two cores, random orders, races, uninitialised memory",
        trials=24, method="estimated", created_at=NOW,
    )  # fmt: skip


def fill(path: Path, count: int) -> str:
    """A database with that many records and one snapshot, written in one transaction."""
    from sqlalchemy import insert

    from db import open_store, rows
    from db.tables import KeyRow, RecordRow, SnapshotRow

    def write(session: Any, _: bool) -> None:
        records = [sample(number) for number in range(count)]
        session.execute(insert(KeyRow), [rows.key_values(record.key) for record in records])
        values = [{**rows.record_values(r), "key_id": n} for n, r in enumerate(records, 1)]
        session.execute(insert(RecordRow), values)
        session.add(SnapshotRow(record_id=count, created_at=NOW))

    with open_store(str(path), create=True) as store:
        store.save_kernel(SPEC)
        store._work.write(write)
    return str(path)


def serve(kind: str, port: int, argument: str) -> None:
    """In the child process: one of the three applications."""
    import uvicorn

    makers: dict[str, Callable[[str], Any]] = {"bare": _bare, "route": _route, "service": _service}
    app = makers[kind](argument)
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def _service(database: str) -> Any:
    from service.app import create_app

    return create_app(database)


def _bare(size: str) -> Any:
    body = b"x" * int(size)
    headers = [(b"content-length", size.encode()), (b"content-type", b"application/json")]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def _route(size: str) -> Any:
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    body = b"x" * int(size)

    async def constant(request: Any) -> Response:
        await request.body()
        return Response(body, media_type="application/json")

    return Starlette(routes=[Route("/v1/lookup", constant, methods=["POST"])])


@contextmanager
def server(kind: str, argument: str) -> Iterator[int]:
    """Its port, once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    command = [sys.executable, __file__, "--serve", kind, str(port), argument]
    process = subprocess.Popen(command)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit(f"the {kind} server did not start") from None
                time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def request(records: list[Record]) -> bytes:
    questions = [
        {"kernel": r.key.kernel, "fingerprint": r.key.fingerprint,
         "problem": problem_to_data(r.key.problem)} for r in records
    ]  # fmt: skip
    toolchain = asdict(records[0].key.toolchain)
    data = {"chip": "v5e", "toolchain": toolchain, "questions": questions}
    body = json.dumps(data).encode()
    head = f"POST /v1/lookup HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Caller(asyncio.Protocol):
    """Asks again as soon as the answer is complete; all answers have the same length."""

    def __init__(self, content: bytes, length: int, times: list[float]) -> None:
        self.content, self.length, self.times = content, length, times
        self.left, self.begun = length, 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._ask()

    def _ask(self) -> None:
        self.left, self.begun = self.length, time.perf_counter()
        self.transport.write(self.content)

    def data_received(self, data: bytes) -> None:
        self.left -= len(data)
        if self.left <= 0:
            self.times.append(time.perf_counter() - self.begun)
            self._ask()


def one_answer(port: int, content: bytes) -> tuple[int, bytes]:
    """The length of an answer with its head, and its body."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(content)
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(1 << 16)
        head, _, body = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        lines = head.lower().split(b"\r\n")
        size = next(int(line.split(b":")[1]) for line in lines if b"content-length" in line)
        while len(body) < size:
            body += connection.recv(1 << 16)
        return len(head) + 4 + size, body


def load(port: int, content: bytes, seconds: float) -> list[float]:
    """The seconds that each call took."""
    length, _ = one_answer(port, content)
    times: list[float] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        made = [
            await loop.create_connection(lambda: Caller(content, length, times), "127.0.0.1", port)
            for _ in range(CONNECTIONS)
        ]
        await asyncio.sleep(seconds)
        for transport, _ in made:
            transport.abort()

    asyncio.run(run())
    return times


def compare(
    ports: dict[str, int], content: bytes, seconds: float, rounds: int
) -> dict[str, tuple[float, float]]:
    """Calls a second (median of the rounds) and p99 in milliseconds (of all), by application."""
    for port in ports.values():
        load(port, content, 0.5)
    rates: dict[str, list[float]] = {name: [] for name in ports}
    taken: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(rounds):
        for name, port in ports.items():
            times = load(port, content, seconds)
            rates[name].append(len(times) / seconds)
            taken[name] += times
    return {name: (statistics.median(rates[name]), _p99(taken[name]) * 1e3) for name in ports}


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


def print_comparison(title: str, found: dict[str, tuple[float, float]], answers: int) -> None:
    print(title)
    for name, (rate, p99) in found.items():
        more = f", {rate * answers:,.0f} answers/s" if answers > 1 else ""
        print(f"  {name:<28} {rate:8,.0f} requests/s{more}   p99 {p99:6.2f} ms")
    names = list(found)
    for other in names[1:]:
        rate, p99 = (found[names[0]][n] / found[other][n] for n in (0, 1))
        print(f"  against {other:<20} {rate:8.1%} of its requests/s, {p99:.2f} × its p99")


def measure_service(folder: Path, arguments: argparse.Namespace) -> None:
    few, many = fill(folder / "few.db", 100), fill(folder / "many.db", arguments.many)
    for count, title in ((1, "one lookup, 100 records"), (BATCH, f"batches of {BATCH}")):
        content = request([sample(number) for number in range(count)])
        with ExitStack() as stack:
            ports = {"service": stack.enter_context(server("service", few))}
            size = str(len(one_answer(ports["service"], content)[1]))
            for kind in ("route", "bare"):
                ports[kind] = stack.enter_context(server(kind, size))
            found = compare(ports, content, arguments.seconds, arguments.rounds)
        print_comparison(f"{title}, {size} bytes", found, count)
    measure_size(few, many, arguments)


def measure_size(few: str, many: str, arguments: argparse.Namespace) -> None:
    content = request([sample(0)])
    begun = time.perf_counter()
    with server("service", many) as large:
        print(f"{arguments.many:,} records are loaded after {time.perf_counter() - begun:.1f} s")
        with server("service", few) as small:
            ports = {f"{arguments.many:,} records": large, "100 records": small}
            found = compare(ports, content, arguments.seconds, arguments.rounds)
            print_comparison("one lookup, by the number of records", found, 1)
        measure_takeover(large, many, content)


def measure_takeover(port: int, database: str, content: bytes) -> None:
    """Publishes while lookups run; the longest that one had to wait."""
    publisher = (
        "import sys, time\nfrom dataclasses import replace\nsys.path.insert(0, sys.argv[2])\n"
        "import service as bench\nfrom db import open_store\n"
        "with open_store(sys.argv[1], create=False) as store:\n"
        "    for n in range(8):\n        time.sleep(0.5)\n"
        "        store.save_record(replace(bench.sample(n), trials=n))\n"
    )
    quiet = load(port, content, 4.0)
    here = str(Path(__file__).parent)
    process = subprocess.Popen([sys.executable, "-c", publisher, database, here])
    busy = load(port, content, 6.0)
    process.wait(60)
    print(f"the longest lookup: {max(quiet) * 1e3:.1f} ms, {max(busy) * 1e3:.1f} ms while 8 "
          "snapshots were published")  # fmt: skip


CLIENT = """
import sys
from autotune.bundle import read_bundle
from autotune.client import Client
from autotune.key import key_from_data
import json
keys = [key_from_data(data) for data in json.load(open(sys.argv[1]))]
client = Client(sys.argv[2] or None, cache=sys.argv[3] or None, timeout_s=20)
assert {one.kind for one in client.lookup(keys)} == {"exact"}
"""


def measure_client(folder: Path, runs: int) -> None:
    from autotune.key import key_to_data

    questions, cache = folder / "questions.json", folder / "configs.bundle"
    keys = [sample(number).key for number in range(BATCH)]
    questions.write_text(json.dumps([key_to_data(key) for key in keys]))
    with server("service", str(folder / "few.db")) as port:
        url = f"http://127.0.0.1:{port}"
        client = Client(url, cache=cache, timeout_s=20, strict=True)
        client.lookup(keys)
        client.refresh()
        assert len(read_bundle(cache).records) == BATCH
        commands = {
            "import urllib.request": ["-c", "import urllib.request"],
            "nothing": ["-c", "pass"],
            f"{BATCH} configs over HTTP": ["-c", CLIENT, str(questions), url, ""],
            f"{BATCH} configs, and the disk": ["-c", CLIENT, str(questions), url, str(cache)],
            f"{BATCH} configs from the disk": ["-c", CLIENT, str(questions), "", str(cache)],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, command in commands.items():
                begun = time.perf_counter()
                subprocess.run([sys.executable, *command], check=True)
                times[name].append(time.perf_counter() - begun)
    least = statistics.median(times["import urllib.request"])
    print(f"from the start of an interpreter, median of {runs}:")
    for name, taken in times.items():
        middle = statistics.median(taken)
        print(f"  {name:<28} {middle * 1e3:6.0f} ms   {middle / least:.2f} ×")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        sys.path.remove(str(Path(__file__).parent))  # it holds this file, which hides the package
        serve(arguments.serve[0], int(arguments.serve[1]), arguments.serve[2])
        return
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        measure_service(Path(folder), arguments)
        measure_client(Path(folder), arguments.runs)


if __name__ == "__main__":
    main()
