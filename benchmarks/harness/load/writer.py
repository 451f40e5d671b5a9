"""A process that pushes results until its time is over, and says what was acknowledged.

Each push has two keys that nobody else has and one that all writers push; it is sent again until
it is acknowledged, and one of ten is sent once more after that.
"""

import http.client
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.load.samples import SHARED, key, push_body, result

OWN = 2
_PATIENCE_S = 60.0  # for the last push
_CALL_S = 30.0


class Writer:
    """``failures``: what was not answered with 200, as time, status (0: no answer), whether it had
    Retry-After, and how long it took."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._connection = self._connect()
        self.failures: list[tuple[float, int, bool, float]] = []
        self.seconds: list[float] = []

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._spec["port"], timeout=_CALL_S)

    def push(self, number: int) -> dict[str, Any]:
        body = json.dumps(push_body(results(self._spec["writer"], number))).encode()
        deadline = time.time() + self._spec["seconds"] + _PATIENCE_S
        push: dict[str, Any] = {"number": number, "begun": time.time(), "tries": 0, "answer": None}
        while push["answer"] is None and time.time() < deadline:
            push["tries"] += 1
            push["answer"] = self._call(body)
        push["done"] = time.time()
        if push["answer"] and number % 10 == 3:
            push["again"] = self._call(body)
        return push

    def _call(self, body: bytes) -> dict[str, Any] | None:
        begun, headers = (
            time.time(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {self._spec['secret']}"},
        )
        try:
            self._connection.request("POST", "/v1/results", body, headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            self._connection = self._connect()
            self.failures.append((begun, 0, False, time.time() - begun))
            time.sleep(0.1)
            return None
        if answer.status == 200:
            self.seconds.append(time.time() - begun)
            return dict(json.loads(content))
        has_retry = answer.headers.get("Retry-After") is not None
        self.failures.append((begun, answer.status, has_retry, time.time() - begun))
        time.sleep(0.2)
        return None


def results(writer: int, number: int) -> list[Any]:
    mark = writer * 1_000_000 + number + 1
    shared_us = random.Random(mark).uniform(10, 100)
    return [
        *(
            result(key(writer + 1, number * OWN + n), f"w{writer} n{number} own{n}", mark)
            for n in range(OWN)
        ),
        result(key(0, number % SHARED), f"w{writer} n{number} shared", mark, shared_us),
    ]


def main(spec: dict[str, Any]) -> None:
    Path(spec["out"]).with_suffix(".begun").touch()
    writer = Writer(spec)
    pushes: list[dict[str, Any]] = []
    end = time.time() + spec["seconds"]
    while time.time() < end and not Path(spec["stop"]).exists():
        pushes.append(writer.push(len(pushes)))
        time.sleep(spec["pause_s"])
    report = {
        "writer": spec["writer"],
        "pushes": pushes,
        "failures": writer.failures,
        "seconds": writer.seconds,
    }
    Path(spec["out"]).write_text(json.dumps(report))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
