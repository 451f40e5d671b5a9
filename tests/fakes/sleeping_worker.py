"""Speaks the protocol of the compiler's worker and compiles nothing: it sleeps as long as a config
says, ``sleep_ms``, and with ``kill`` ends the process that has started it.

What it answers is in the file ``$FAKE_COMPILED``; without one, that it does not compile. What it
was asked it writes to ``$FAKE_ASKED``.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_FAILED = {"error": {"type": "E", "message": "asleep", "stage": "build", "raised_at": ""}}


def answer(request: dict[str, Any]) -> Any:
    if request["kind"] == "hello":
        return {"ok": {"jax": "1", "jaxlib": "1", "libtpu": "1"}}
    if request["kind"] == "pid":
        return {"ok": os.getpid()}
    if request["kind"] == "echo":
        return {"ok": request}
    axes = request["config"]["axes"]
    if log := os.environ.get("FAKE_ASKED"):
        with Path(log).open("a") as file:
            file.write(f"{request['config']}\n")
    if axes.get("kill"):
        os.kill(os.getppid(), signal.SIGKILL)
    _sleep(axes.get("sleep_ms", int(os.environ.get("FAKE_SLEEP_MS", "0"))) / 1e3)
    known = os.environ.get("FAKE_COMPILED")
    return {"ok": json.loads(Path(known).read_bytes())} if known else _FAILED


def _sleep(seconds: float) -> None:
    """Not on when nobody is left to answer, as the real worker does not: a node of a cluster may be
    killed under it."""
    parent, end = os.getppid(), time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and os.getppid() == parent:
        time.sleep(min(left, 0.2))


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
