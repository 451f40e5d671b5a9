"""A process with one connection, at the usual priority, that asks for one published key again and
again: how long each answer took, and by how much it woke up late itself."""

import asyncio
import json
import sys
import time

from benchmarks.harness.load.reader import Connection, encoded
from benchmarks.harness.load.samples import key

_PAUSE_S = 0.02


async def ask(port: int, seconds: float) -> dict[str, list[float]]:
    connection, body = Connection(port), encoded([key(0, 1)])
    taken: list[float] = []
    late: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter()
        status, _, _ = await connection.call("POST", "/v1/lookup", body)
        answered = time.perf_counter()
        assert status == 200
        taken.append(answered - begun)
        await asyncio.sleep(_PAUSE_S)
        late.append(time.perf_counter() - answered - _PAUSE_S)
    return {"seconds": taken, "late": late}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(ask(int(sys.argv[1]), float(sys.argv[2])))))
