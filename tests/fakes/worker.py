"""Speaks the protocol of the compiler's worker, compiles nothing, and does to its parent what it is
asked to.

Run as a script, with the dump folder as its argument; it needs nothing but the standard library.
"""

import json
import os
import signal
import subprocess
import sys
import time
from math import inf
from pathlib import Path


def answer(request):
    kind = request["kind"]
    if kind == "echo":
        return {"ok": request.get("value", request)}
    if kind == "hello":
        return {"ok": {"jax": "1", "jaxlib": "1", "libtpu": "1"}}
    if kind == "tell":
        Path(sys.argv[1]).with_name("underway").write_text(request["text"])
        time.sleep(request.get("seconds", 0))
        return {"ok": None}
    if kind == "pid":
        return {"ok": os.getpid()}
    if kind == "list":  # as the request says, unless libtpu prints the listings
        stage = request["stage"]
        error = {"type": "E", "message": "", "stage": stage, "raised_at": ""}
        asked = {"listing": "AUTOTUNE_WHOLE_LISTING", "lines": "AUTOTUNE_SOURCE_LINES"}.get(
            stage, ""
        )
        return {"ok": os.getpid()} if asked in os.environ else {"error": error}
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
        return {"ok": _start_family("import time; time.sleep(1000)", holding=2)}
    if kind == "leave":  # dies, and what it started holds its pipe open until the parent hangs up
        hung_up = "import select; pipe = select.poll(); pipe.register(0, 0); pipe.poll()"
        _start_family(hung_up, holding=1)
        os._exit(7)
    if kind == "eat":
        eaten = bytearray(request["bytes"])
        eaten[::4096] = b"x" * len(range(0, len(eaten), 4096))
        while request["talking"]:
            os.write(1, b" " * 1000)
    return _compiled(request["config"]) if "config" in request else _hang()


def _compiled(config):
    """After as long as the config says, ``sleep_ms``; with ``kill`` it ends its parent. The answer
    is in the file ``$FAKE_COMPILED``; without one, it does not compile. What is asked is written to
    ``$FAKE_ASKED``."""
    axes = config["axes"]
    if log := os.environ.get("FAKE_ASKED"):
        with Path(log).open("a") as file:
            file.write(f"{config}\n")
    if axes.get("kill"):
        os.kill(os.getppid(), signal.SIGKILL)
    _hang(axes.get("sleep_ms", int(os.environ.get("FAKE_SLEEP_MS", "0"))) / 1e3)
    failed = {"type": "E", "message": "asleep", "stage": "build", "raised_at": ""}
    known = os.environ.get("FAKE_COMPILED")
    return {"ok": json.loads(Path(known).read_bytes())} if known else {"error": failed}


def _hang(seconds=inf):
    """As long as the one lives that must put an end to it: a node of a cluster may be killed."""
    parent, end = os.getppid(), time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and os.getppid() == parent:
        time.sleep(min(left, 0.2))


def _start_family(code, holding):
    """A child in a session of its own, and a grandchild that has lost its parent."""
    python = [sys.executable, "-c", code]
    own = subprocess.Popen(python, start_new_session=True, stdout=holding)
    start = f"import subprocess; print(subprocess.Popen({python}, stdout=2).pid)"
    found = subprocess.run([sys.executable, "-c", start], stdout=subprocess.PIPE, check=True)
    return [own.pid, int(found.stdout)]


def main():
    for line in sys.stdin:
        request = json.loads(line)
        if request["kind"] == "nonsense":
            print(request["words"], flush=True)
        else:
            print(json.dumps(answer(request)), flush=True)


if __name__ == "__main__":
    if "FAKE_WORKER_DEAF" in os.environ:  # reads nothing
        _hang()
    main()
