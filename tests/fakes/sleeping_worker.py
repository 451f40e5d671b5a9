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
        return {"ok": [{"jax": "1", "jaxlib": "1", "libtpu": "1"}, "3", os.getpid()]}
    if request["kind"] == "echo":
        return {"ok": request}
    axes = request["config"]["axes"]
    if log := os.environ.get("FAKE_ASKED"):
        with Path(log).open("a") as file:
            file.write(f"{request['config']}\n")
    time.sleep(axes.get("sleep_ms", int(os.environ.get("FAKE_SLEEP_MS", "0"))) / 1e3)
    if axes.get("kill"):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    known = os.environ.get("FAKE_COMPILED")
    return {"ok": json.loads(Path(known).read_bytes())} if known else _FAILED


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
