"""What the benchmarks of the service share: records, databases, servers, and a load of lookups."""

import asyncio
import itertools
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from autotune.domain.codec import to_data
from autotune.domain.key import Chip, KernelSpec, Key, Toolchain
from autotune.domain.outcome import Estimate, Estimated
from autotune.domain.problem import Config, Problem, ProblemSpec
from autotune.domain.record import Evidence, Method, Record, Trial

Targets = dict[str, tuple[int, Iterator[bytes]]]
"""Ports by name, and what they are sent."""

CONNECTIONS = 8
_MARK = 32  # characters of white space at the end of a body
_CHUNK = 5_000  # rows in one statement
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = KernelSpec(
    name="matmul",
    fingerprint="0123456789ab",
    axes=("block_m", "block_k", "block_n"),
    grid=("m", "n", "k"),
    problems=ProblemSpec(dims=("m", "k", "n"), dtypes=("bfloat16",)),
    cuts=(("block_m", "m"),),
)


def sample(number: int) -> Record:
    """As large as those of a real search, each with a key of its own."""
    dims = (("m", 128 * (number % 1000 + 1)), ("k", 128 * (number // 1000 + 1)), ("n", 4096))
    estimate = Estimate(
        time_us=16.7,
        compute_us=12.3,
        memory_us=7.7,
        overhead_us=0.6,
        fill_us=3.7,
        limited_by="pipeline fill",
        model="schedule-3",
        vmem_used_bytes=3370000,
        vmem_allowed_bytes=16777216,
        hbm_bytes=6291456,
        flops=2147483648,
        error=0.06,
        notes=("a note as long as notes are in records of real searches",),
    )
    config = Config(
        axes=(("block_m", 128), ("block_k", 1024), ("block_n", 1024)),
        grid_order=("m", "n", "k"),
        dimension_semantics=("parallel",) * 3,
    )
    return Record(
        key=Key(
            kernel=SPEC.name,
            fingerprint=SPEC.fingerprint,
            chip=Chip.V5E,
            problem=Problem(dims=dims, dtype="bfloat16"),
            toolchain=Toolchain(jax="0.10.2", jaxlib="0.10.2", libtpu="0.0.42.1"),
        ),
        config=config,
        estimate=estimate,
        default=Evidence(config=config, time_us=181.3),
        baseline=Evidence(config=None, time_us=10.9, expected_us=20.1, note="a lower bound"),
        is_default=False,
        reason="estimated 10.84 times as fast as the default",
        verified=True,
        verification="interpret mode: two cores, random orders, races, uninitialised memory",
        trials=24,
        method=Method.ESTIMATED,
        created_at=NOW,
    )


def fill(path: Path, count: int, trials: int = 0) -> str:
    """A database with that many records, as many trials for each, and one snapshot."""
    from sqlalchemy import insert

    from autotune_db import open_store, rows
    from autotune_db.tables import KEYS, RECORDS, SNAPSHOTS, TRIALS

    outcome = rows.outcome_values(Estimated(estimate=sample(0).estimate, program="f00d" * 8))
    more = {**outcome, "seconds": 0.4, "created_at": NOW, "pushed_by": ""}
    configs = [_tried(number) for number in range(trials)]

    def write(connection: Any, _: bool) -> None:
        for start in range(0, count, _CHUNK):
            numbers = range(start + 1, min(start + _CHUNK, count) + 1)
            records = [sample(number - 1) for number in numbers]
            connection.execute(insert(KEYS), [rows.key_values(record.key) for record in records])
            values = [
                {**rows.record_values(r), "key_id": n}
                for n, r in zip(numbers, records, strict=True)
            ]
            connection.execute(insert(RECORDS), values)
            tried = [{**config, **more, "key_id": n} for n in numbers for config in configs]
            if tried:
                connection.execute(insert(TRIALS), tried)
        connection.execute(insert(SNAPSHOTS).values(record_id=count, created_at=NOW))

    with open_store(str(path), create=True) as store:
        store.save_kernel(SPEC)
        store._work.write(write)
    return str(path)


def _tried(number: int) -> dict[str, Any]:
    """The columns of a trial that are the same for all keys."""
    from autotune_db import rows

    config = replace(sample(0).config, axes=(("block_m", 128 << number % 8), ("number", number)))
    trial = Trial(
        number=number,
        config=config,
        seconds=0.4,
        created_at=NOW,
        outcome=Estimated(estimate=sample(0).estimate, program="f00d" * 8),
    )
    values = rows.trial_values(trial)
    return {name: values[name] for name in ("number", "config", "config_digest")}


def serve(kind: str, port: int, argument: str) -> None:
    """In the child process: one of the three applications."""
    import uvicorn

    from autotune_service.settings import Settings, options

    makers: dict[str, Callable[[str], Any]] = {"bare": _bare, "route": _route, "service": _service}
    settings = options(Settings(port=port))
    if kind != "service":
        settings["http"] = "httptools"  # without the limits of the service
    uvicorn.run(makers[kind](argument), **settings, log_level="warning")


def _service(database: str) -> Any:
    from autotune_service.app import create_app
    from autotune_service.settings import Settings

    return create_app(database, Settings(reads_per_second=10**9))


_SAME_HEADERS = {"x-content-type-options": "nosniff", "x-request-id": "0123456789abcdef"}
"""As many as the service has, for what is compared with it."""


def _bare(size: str) -> Any:
    body = b"x" * int(size)
    expected = {"content-length": size, "content-type": "application/json"} | _SAME_HEADERS
    headers = [(name.encode(), value.encode()) for name, value in expected.items()]

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
        return Response(body, headers=_SAME_HEADERS, media_type="application/json")

    return Starlette(routes=[Route("/v1/lookup", constant, methods=["POST"])])


@contextmanager
def server(kind: str, argument: str) -> Iterator[int]:
    """Its port, once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    command = [sys.executable, "-m", "benchmarks.harness.servers", kind, str(port), argument]
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
        {
            "kernel": r.key.kernel,
            "fingerprint": r.key.fingerprint,
            "problem": to_data(r.key.problem),
        }
        for r in records
    ]
    toolchain = asdict(records[0].key.toolchain)
    data = {"chip": "v5e", "toolchain": toolchain, "questions": questions}
    body = json.dumps(data).encode() + b" " * _MARK
    head = (
        "POST /v1/lookup HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def never_sent(content: bytes) -> Iterator[bytes]:
    """The same questions in a body that differs each time, in the white space behind them."""
    for number in itertools.count(1):
        mark = f"{number:0{_MARK}b}".translate({48: " ", 49: "\t"})
        yield content[:-_MARK] + mark.encode()


class Caller(asyncio.Protocol):
    """Asks again as soon as the answer is complete; all answers have the same length."""

    def __init__(self, contents: Iterator[bytes], length: int, times: list[float]) -> None:
        self.contents, self.length, self.times = contents, length, times
        self.left, self.begun = length, 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._ask()

    def _ask(self) -> None:
        self.left, self.begun = self.length, time.perf_counter()
        self.transport.write(next(self.contents))

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


def load(port: int, contents: Iterator[bytes], seconds: float) -> list[float]:
    """The seconds that each call took."""
    length, _ = one_answer(port, next(contents))
    times: list[float] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        made = [
            await loop.create_connection(lambda: Caller(contents, length, times), "127.0.0.1", port)
            for _ in range(CONNECTIONS)
        ]
        await asyncio.sleep(seconds)
        for transport, _ in made:
            transport.abort()

    asyncio.run(run())
    return times


def p99_of(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


def cpu_each(targets: Targets, seconds: float, rounds: int) -> dict[str, float]:
    """Processor seconds of the server for each call, the least of some rounds: who else uses the
    machine empties its caches."""
    times: dict[str, list[float]] = {name: [] for name in targets}
    for _ in range(rounds):
        for name, (port, contents) in targets.items():
            process = psutil.Process(_listening(port))
            begun = sum(process.cpu_times()[:2])
            calls = len(load(port, contents, seconds))
            times[name].append((sum(process.cpu_times()[:2]) - begun) / calls)
    return {name: min(each) for name, each in times.items()}


def _listening(port: int) -> int | None:
    """The process that does."""
    connections = psutil.net_connections("tcp")
    pid: int | None = next(
        c.pid for c in connections if c.status == "LISTEN" and c.laddr.port == port
    )
    return pid


def publish(database: str, ports: list[int], count: int) -> list[float]:
    """Publishes that many snapshots; the seconds until every process answers from each."""
    from autotune_db import open_store

    content, taken = request([sample(0)]), []
    with open_store(database, create=False) as store:
        for number in range(count):
            time.sleep(0.5)
            store.save_record(replace(sample(number), trials=number))
            begun, newest = time.perf_counter(), store.snapshots(1)[0].number
            waiting = list(ports)
            while waiting:
                time.sleep(0.02)
                answers = {port: one_answer(port, content)[1] for port in waiting}
                waiting = [port for port, body in answers.items() if _snapshot(body) < newest]
            taken.append(time.perf_counter() - begun)
    return taken


def _snapshot(body: bytes) -> int:
    return int(json.loads(body)["snapshot"])


def publishing(database: str, ports: list[int], count: int) -> "subprocess.Popen[str]":
    """``publish`` in a process of its own, so that it does not hold up a load; it prints a list.

    It has started: what starting costs the other processes is no part of a publication.
    """
    command = [sys.executable, "-m", "benchmarks.harness.servers", "publish"]
    command += [database, json.dumps(ports), str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def main(kind: str, *arguments: str) -> None:
    if kind == "publish":
        import autotune_db  # noqa: F401  (what takes long)

        database, ports, count = arguments
        print("ready", flush=True)
        print(json.dumps(publish(database, json.loads(ports), int(count))))
    else:
        serve(kind, int(arguments[0]), arguments[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
