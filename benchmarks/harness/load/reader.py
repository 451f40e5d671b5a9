"""A process with many connections that look up until its time is over, and what they have seen.

Most ask for keys that are published for sure; some for keys that a writer is about to publish, some
stay with an older snapshot, a few take a whole one or ask for what only the database knows.
"""

import asyncio
import hashlib
import json
import random
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from benchmarks.harness.load.samples import key, lookup_body
from benchmarks.harness.load.service import BASE

SETS = 10
SIZE = BASE // SETS
_CALL_S = 30.0
_PINNED_S = 5.0  # how long the readers stay with one older snapshot
_Answer = tuple[int, dict[str, str], bytes]


def questions(number: int) -> list[Any]:
    """One of the sets of keys that are asked for together."""
    return [key(0, SIZE * number + n) for n in range(SIZE)]


def encoded(keys: list[Any], snapshot: int | None = None) -> bytes:
    return json.dumps(lookup_body(keys, snapshot)).encode()


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:24]


class Readers:
    """``seen``: a digest of each answer by snapshot and set; ``wrong``: what must not be; ``late``:
    by how many seconds pauses were too long, as any answer is then seen too late."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.random = spec, random.Random(7)
        self.calls: dict[str, Counter[int]] = defaultdict(Counter)
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.failures: list[tuple[float, int, bool, float]] = []
        self.late: list[float] = []
        self.seen: dict[str, str] = {}
        self.wrong: list[str] = []
        self.pinned, self._pinned_at, self.ended = 0, 0.0, False
        self._sets = [encoded(questions(number)) for number in range(SETS)]
        self._ones = [encoded([key(0, number)]) for number in range(BASE)]

    async def run(self) -> None:
        connections = [asyncio.create_task(self._one()) for _ in range(self.spec["connections"])]
        end, stop = time.time() + self.spec["seconds"], Path(self.spec["stop"])
        while time.time() < end and not await asyncio.to_thread(stop.exists):
            await asyncio.sleep(0.1)
        self.ended = True
        await asyncio.gather(*connections)

    async def _one(self) -> None:
        connection = Connection(self.spec["port"])
        while not self.ended:
            kind, method, path, body, number = self._choose()
            begun, clock = time.time(), time.perf_counter()
            try:
                async with asyncio.timeout(_CALL_S):
                    answer = await connection.call(method, path, body)
            except (OSError, EOFError, TimeoutError):
                connection.drop()
                self.failures.append((begun, 0, False, time.perf_counter() - clock))
                await asyncio.sleep(0.05)
                continue
            taken = time.perf_counter() - clock
            self.calls[kind][answer[0]] += 1
            self.seconds[kind].append(taken)
            if answer[0] == 200:
                self._check(kind, answer, number)
            else:
                self.failures.append((begun, answer[0], "retry-after" in answer[1], taken))
            await self._pause(self.spec["pause_s"] * self.random.uniform(0.5, 1.5))
        connection.drop()

    async def _pause(self, seconds: float) -> None:
        begun = time.perf_counter()
        await asyncio.sleep(seconds)
        self.late.append(time.perf_counter() - begun - seconds)

    def _choose(self) -> tuple[str, str, str, bytes, int]:
        """What it is, the call, and which set or snapshot it asks for."""
        chance, number = self.random.random(), self.random.randrange(SETS)
        if chance < 0.70:
            return "batch", "POST", "/v1/lookup", self._sets[number], number
        if chance < 0.88:
            return "single", "POST", "/v1/lookup", self.random.choice(self._ones), number
        if chance < 0.93:
            soon = [key(self.random.randrange(1, 9), self.random.randrange(2_000))]
            return "new key", "POST", "/v1/lookup", encoded(soon), number
        if chance < 0.99 and self.pinned:
            asked = encoded(questions(number), self.pinned)
            return "older snapshot", "POST", "/v1/lookup", asked, number
        if chance < 0.992 and self.pinned:
            return "bundle", "GET", f"/v1/snapshots/{self.pinned}", b"", self.pinned
        return "from the database", "GET", "/v1/jobs", b"", 0

    def _check(self, kind: str, answer: _Answer, number: int) -> None:
        _, headers, body = answer
        if kind == "bundle":
            self._same(f"{headers['x-snapshot']} bundle", headers["etag"])
            if int(headers["x-snapshot"]) != number:
                self.wrong.append(f"asked for snapshot {number}, got {headers['x-snapshot']}")
        if kind not in ("batch", "single", "older snapshot"):
            return
        if body.count(b'"match":"exact"') != (1 if kind == "single" else SIZE):
            self.wrong.append(f"{kind}: published keys were answered with {body[:300]!r}")
        snapshot = int(body[len(b'{"snapshot":') : body.index(b",")])
        if kind != "single":
            self._same(f"{snapshot} {number}", digest(body))
        if time.time() - self._pinned_at > _PINNED_S and kind == "batch":
            self.pinned, self._pinned_at = snapshot, time.time()

    def _same(self, what: str, value: str) -> None:
        if self.seen.setdefault(what, value) != value:
            self.wrong.append(f"snapshot and set {what}: two answers")


class Connection:
    """One that is kept alive, and made again when it broke."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: bytes) -> _Answer:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            n.strip().lower(): v.strip() for n, _, v in (x.partition(":") for x in lines[1:])
        }
        return (
            int(lines[0].split()[1]),
            headers,
            await reader.readexactly(int(headers.get("content-length", 0))),
        )

    def drop(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def main(spec: dict[str, Any]) -> None:
    Path(spec["out"]).with_suffix(".begun").touch()
    readers = Readers(spec)
    asyncio.run(readers.run())
    seen = {
        "calls": readers.calls,
        "seconds": readers.seconds,
        "late": readers.late,
        "failures": readers.failures,
        "seen": readers.seen,
        "wrong": readers.wrong[:20],
        "wrong_count": len(readers.wrong),
    }
    Path(spec["out"]).write_text(json.dumps(seen))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
