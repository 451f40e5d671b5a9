"""Speaks the protocol of the compiler's worker, and does to its parent what it is asked to.

Run as a script, with the dump folder as its argument; it needs nothing but the standard library.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any


def answer(request: dict[str, Any]) -> Any:
    kind = request["kind"]
    if kind == "echo":
        return {"ok": request["value"]}
    if kind == "hello":
        return {"ok": [{"jax": "1", "jaxlib": "1", "libtpu": "1"}, "3", os.getpid()]}
    if kind == "verify":
        return {"ok": json.loads(os.environ["FAKE_VERDICT"])}
    if kind == "work":
        while time.process_time() < request["processor_s"]:
            pass
        return {"ok": True}
    if kind == "die":
        print(request["words"], file=sys.stderr, flush=True)
        os.kill(os.getpid(), request["signal"])
    if kind == "exit":
        os._exit(request["code"])
    if kind == "family":
        return {"ok": _start_family(holding=2)}
    if kind == "leave":  # dies, and what it started holds its pipe open
        _start_family(holding=1)
        os._exit(7)
    if kind == "eat":
        eaten = bytearray(request["bytes"])
        eaten[::4096] = b"x" * len(range(0, len(eaten), 4096))
        while request["talking"]:
            os.write(1, b" " * 1000)
        time.sleep(1000)
    return time.sleep(request.get("seconds", 1000))


def _start_family(holding: int) -> list[int]:
    """A child in a session of its own, and a grandchild that has lost its parent."""
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)"]
    own = subprocess.Popen(sleep, start_new_session=True, stdout=holding)
    start = f"import subprocess; print(subprocess.Popen({sleep}, stdout=2).pid)"
    found = subprocess.run([sys.executable, "-c", start], stdout=subprocess.PIPE, check=True)
    return [own.pid, int(found.stdout)]


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if request["kind"] == "nonsense":
            print(request["words"], flush=True)
        else:
            print(json.dumps(answer(request)), flush=True)


if __name__ == "__main__":
    if "FAKE_WORKER_DEAF" in os.environ:  # reads nothing
        time.sleep(1000)
    main()
