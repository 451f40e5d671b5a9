"""One attacker of each kind, each from an address of its own, with up to a hundred calls or new
connections a second: more is for what stands in front of a service.

A real attacker brings processors of his own. These share ours with what they attack, so they run at
the lowest priority: the time that the service gets is what it would have without them.
"""

import asyncio
import json
import os
import random
import sys
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from benchmarks.harness.load.reader import encoded
from benchmarks.harness.load.samples import key, lookup_body

MOST_SOCKETS = 300
_TRICKLE_S = 1.0
_PAUSE_S = 0.01
_LOWEST_PRIORITY = 19


@dataclass
class Attacker:
    """``did``: how often it got which status, 0 for a connection that was ended."""

    port: int
    address: str
    did: Counter[int] = field(default_factory=Counter)
    rng: random.Random = field(default_factory=lambda: random.Random(7))

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        source = (self.address, 0)
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=source)

    async def call(self, sent: bytes) -> None:
        """One call on a connection of its own; the answer is read to its end."""
        try:
            reader, writer = await self.connect()
            try:
                writer.write(sent)
                head = await reader.readuntil(b"\r\n")
                self.did[int(head.split()[1])] += 1
                while await reader.read(1 << 16):
                    pass
            finally:
                writer.transport.abort()
        except (OSError, EOFError, asyncio.LimitOverrunError):
            self.did[0] += 1
        await asyncio.sleep(_PAUSE_S)

    async def hold(self, first: bytes, trickle: bytes = b"") -> None:
        """A connection that says no more than this, until it is ended; then another."""
        while True:
            try:
                reader, writer = await self.connect()
                writer.write(first)
                while trickle and not (reader.at_eof() or reader.exception()):
                    writer.write(trickle)
                    await asyncio.sleep(_TRICKLE_S)
                await reader.read()
                writer.transport.abort()
            except OSError:
                pass
            self.did[0] += 1
            await asyncio.sleep(_PAUSE_S * MOST_SOCKETS)


def post(path: str, body: bytes, *more: str) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", *more)
    head = "\r\n".join((*lines, "Content-Type: application/json", f"Content-Length: {len(body)}"))
    return head.encode() + b"\r\n\r\n" + body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


def unknown(attacker: Attacker, questions: int) -> bytes:
    """Other shapes of a known kernel, each asked for the first time."""
    bodies = [
        key(attacker.rng.randrange(100, 10**6), attacker.rng.randrange(10**6))
        for _ in range(questions)
    ]
    return post("/v1/lookup", json.dumps(lookup_body(bodies)).encode())


async def many(work: Callable[[], Awaitable[None]]) -> None:
    await asyncio.gather(*(work() for _ in range(MOST_SOCKETS)))


async def silent(a: Attacker) -> None:
    await many(lambda: a.hold(b""))


async def half_heads(a: Attacker) -> None:
    await many(lambda: a.hold(b"GET /healthz HTTP/1.1\r\nX-Slow: ", b"x"))


async def half_bodies(a: Attacker) -> None:
    start = b"POST /v1/lookup HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n{"
    await many(lambda: a.hold(start, b" "))


async def large_heads(a: Attacker) -> None:
    while True:
        await a.call(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * (1 << 20) + b"\r\n\r\n")


async def bombs(a: Attacker) -> None:
    packed = post("/v1/lookup", zlib.compress(bytes(64 << 20)), "Content-Encoding: gzip")
    nested = post("/v1/lookup", b"[" * (1 << 20))
    for number in count():
        await a.call(nested if number % 2 else packed)


async def misses(a: Attacker) -> None:
    while True:
        await a.call(unknown(a, 1))


async def large_batches(a: Attacker) -> None:
    while True:
        await a.call(unknown(a, 1_000))


async def failed_log_ins(a: Attacker) -> None:
    for number in count():
        await a.call(post("/v1/results", b"{}", f"Authorization: Bearer autotune_{number}"))


async def event_streams(a: Attacker) -> None:
    async def follow() -> None:
        while True:
            await a.call(get(f"/keys/{a.rng.randrange(1, 100)}/events"))
            await asyncio.sleep(_PAUSE_S * MOST_SOCKETS)

    await many(follow)


async def large_answers(a: Attacker) -> None:
    paths = ("/v1/records?limit=1000", "/v1/snapshots/latest", "/export/kernel.json", "/")
    for number in count():
        await a.call(get(paths[number % len(paths)]))


async def known_batches(a: Attacker) -> None:
    """All that is published, again and again: no question of it costs much."""
    body = post("/v1/lookup", encoded([key(0, number % 200) for number in range(1_000)]))
    while True:
        await a.call(body)


async def wrong_lookups(a: Attacker) -> None:
    """Large in each way that takes long to read: unknown fields, names, and what is no question."""
    names = dict.fromkeys(map(str, range(50_000)), 1)
    problem = {"kernel": "matmul", "problem": {"dims": names}}
    wrong: tuple[list[Any], ...] = ([problem], [names], [1] * 300_000, [[]] * 200_000)
    bodies = [json.dumps({"questions": questions}).encode() for questions in wrong]
    bodies.append(json.dumps({"questions": []} | names).encode())
    for number in count():
        await a.call(post("/v1/lookup", bodies[number % len(bodies)]))


async def crowds(a: Attacker) -> None:
    """Large batches on as many connections as one address may have."""

    async def ask() -> None:
        while True:
            await a.call(unknown(a, 1_000))

    await many(ask)


async def odd_heads(a: Attacker) -> None:
    """A cookie that some versions of Python read for a second, names and parameters."""
    odd = ['Cookie: a="' + "\\a" * 15_000 + '"', "\r\n".join(["a:"] * 7_000)]
    heads = [
        get("/healthz").replace(b"Connection", f"{line}\r\nConnection".encode()) for line in odd
    ]
    heads.append(get("/healthz?" + "a&" * 15_000))
    for number in count():
        await a.call(heads[number % len(heads)])


async def pipelined(a: Attacker) -> None:
    call = get("/healthz").replace(b"Connection: close\r\n", b"")
    while True:
        await a.call(call * 5_000)


KINDS: dict[str, Callable[[Attacker], Coroutine[Any, Any, None]]] = {
    path.__name__.replace("_", " "): path
    for path in (
        silent,
        half_heads,
        half_bodies,
        large_heads,
        bombs,
        misses,
        large_batches,
        known_batches,
        failed_log_ins,
        event_streams,
        large_answers,
        wrong_lookups,
        crowds,
        odd_heads,
        pipelined,
    )
}


async def attack(spec: dict[str, Any]) -> dict[str, Counter[int]]:
    """All ``kinds`` at once, for ``seconds`` from the line *ready* on; what became of the calls of
    each."""
    os.nice(_LOWEST_PRIORITY)
    print("ready", flush=True)
    attackers = {
        kind: Attacker(spec["port"], f"127.0.0.{10 + number}")
        for number, kind in enumerate(KINDS)
        if kind in spec["kinds"]
    }
    tasks = [asyncio.create_task(KINDS[kind](attacker)) for kind, attacker in attackers.items()]
    await asyncio.sleep(spec["seconds"])
    for task in tasks:
        if task.done():
            task.result()  # an attacker that gave up is a mistake of ours
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {kind: attacker.did for kind, attacker in attackers.items()}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(attack(json.loads(sys.argv[1])))))
