"""What do those who attack the service cost those who use it?

    python -m benchmarks attacks [--seconds 20] [--each] [--readers 8] [--workers 2]
    python -m benchmarks attacks --beside-constant [--kinds crowds …] [--seconds 10] [--rounds 3]

``autotune serve`` as it is by default, and a mixed load: exact lookups one by one and in batches,
nearest ones, older snapshots, pages that follow a search, and a machine that pushes twice a second.
First alone, then with one attacker of each kind at once (``--each``: also one after another), each
from an address of its own. Exit code 1 where a rightful call was not answered.

All of it shares this machine. Attackers have the lowest priority, because a real one brings
processors of his own. The clients' own processes have to wait for a processor too: by how much they
woke up late is shown, and left in their times. ``--beside-constant`` tells the machine's part: one
connection asks the service, and in turn a Starlette route that answers always the same, under the
same attacker; what counts is the ratio of the two.
"""

import argparse
import http.client
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF
from typing import Any

import psutil

from benchmarks.harness.attackers import KINDS
from benchmarks.harness.load.samples import key, lookup_body
from benchmarks.harness.load.service import Load, Service, prepare
from benchmarks.harness.servers import p99_of, server

MOST_LOOKUP_S, MOST_HEALTH_S = 0.050, 0.100
LOOKUPS = ("single", "batch", "new key")
_HEALTH_EVERY_S = 0.1
DEFAULTS = ("--reads-per-second", "2000", "--writes-per-second", "20")
_FOLLOWERS = 3
_BEFORE_S = 2.0  # until attackers are at it


class Watch(threading.Thread):
    """Asks ``path`` again and again; ``seconds`` that each answer took, ``failed`` ones."""

    def __init__(self, port: int, path: str) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
        self.failed, self._port, self._path, self.ended = 0, port, path, False

    def run(self) -> None:
        while not self.ended:
            begun = time.perf_counter()
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            try:
                connection.request("GET", self._path)
                answer = connection.getresponse()
                answer.read()
                self.failed += answer.status != 200
            except (OSError, http.client.HTTPException):
                self.failed += 1
            finally:
                connection.close()
            self.seconds.append(time.perf_counter() - begun)
            time.sleep(_HEALTH_EVERY_S)


def measure(
    service: Service, secret: str, kinds: Sequence[str], options: argparse.Namespace
) -> dict[str, Any]:
    """One load with these attackers: seconds by kind of call, failures, what attackers got."""
    spec = {"port": service.port, "kinds": kinds, "seconds": options.seconds + _BEFORE_S}
    command = [sys.executable, "-m", "benchmarks.harness.attackers", json.dumps(spec)]
    attackers = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert attackers.stdout is not None and attackers.stdout.readline() == "ready\n"
    time.sleep(_BEFORE_S)
    begun, before = time.perf_counter(), _processor_s(service, attackers)
    watches = [Watch(service.port, "/healthz")]
    watches += [Watch(service.port, "/keys/1/events") for _ in range(_FOLLOWERS)]
    with tempfile.TemporaryDirectory() as folder:
        for watch in watches:
            watch.start()
        load = Load(
            service,
            secret,
            Path(folder),
            seconds=options.seconds,
            writers=1,
            readers=options.readers,
            pause_s=0.02,
            write_pause_s=0.5,
        )
        with load:
            (writer,), readers = load.finish()
        for watch in watches:
            watch.ended = True
        seconds = time.perf_counter() - begun
        after = _processor_s(service, attackers)
    failed = len(readers["failures"]) + len(writer["failures"]) + readers["wrong_count"]
    return {
        "seconds": {**readers["seconds"], "push": writer["seconds"], "health": watches[0].seconds},
        "failed": failed + sum(watch.failed for watch in watches),
        "why": readers["failures"][:3] + writer["failures"][:3] + readers["wrong"][:3],
        "late": readers["late"],
        "cores": {who: (after[who] - before[who]) / seconds for who in after},
        "got": json.loads(attackers.communicate(timeout=60)[0]),
    }


def beside_constant(kind: str, options: argparse.Namespace) -> int:
    """One attacker at the service, of one process, then at a constant route, some rounds. Whether
    lookups were slower than the constant route by more than what they may take."""
    with tempfile.TemporaryDirectory(prefix="attacks-") as name:
        folder = Path(name)
        database = str(folder / "service.db")
        prepare(database)
        service = Service(database, folder, workers=1, flags=DEFAULTS)
        service.start()
        asked: dict[str, list[float]] = {"the service": [], "a constant route": []}
        late: list[float] = []
        try:
            size = len(service.call("POST", "/v1/lookup", lookup_body([key(0, 1)]))[2])
            with server("route", str(size)) as constant:
                for _ in range(options.rounds):
                    for who, port in zip(asked, (service.port, constant), strict=True):
                        seen = _probed(port, kind, options.seconds)
                        asked[who] += seen["seconds"]
                        late += seen["late"]
        finally:
            service.stop()
    print(f"\nwith {kind}")
    for who, times in asked.items():
        median, p99 = statistics.median(times) * 1e3, p99_of(times) * 1e3
        print(f"  {who:<18} {len(times):6,} answers, median {median:.1f} ms, p99 {p99:.1f} ms")
    ours, constants = map(p99_of, asked.values())
    print(f"  the client woke up late by {p99_of(late) * 1e3:.1f} ms (p99)")
    print(f"  {ours / constants:.2f} × the p99 of the constant route")
    return int(ours - constants > MOST_LOOKUP_S)


def _probed(port: int, kind: str, seconds: float) -> dict[str, list[float]]:
    spec = {"port": port, "kinds": [kind], "seconds": seconds + _BEFORE_S + 1}
    command = [sys.executable, "-m", "benchmarks.harness.attackers", json.dumps(spec)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attackers:
        assert attackers.stdout is not None and attackers.stdout.readline() == "ready\n"
        time.sleep(_BEFORE_S)
        probe = [sys.executable, "-m", "benchmarks.harness.probe", str(port), str(seconds)]
        asked = json.loads(subprocess.run(probe, capture_output=True, check=True).stdout)
        attackers.terminate()
    return dict(asked)


def _processor_s(service: Service, attackers: subprocess.Popen[str]) -> dict[str, float]:
    """What each has taken so far, in seconds of one core; those who have ended, with ourselves, are
    the clients."""
    ourselves, children = (resource.getrusage(of) for of in (RUSAGE_SELF, RUSAGE_CHILDREN))
    return {
        "the service": sum(_seconds_of(process) for process in service.answering()),
        "attackers": _seconds_of(psutil.Process(attackers.pid)),
        "clients": sum(used.ru_utime + used.ru_stime for used in (ourselves, children)),
    }


def _seconds_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def lookups(measured: dict[str, Any]) -> list[float]:
    return [seconds for kind in LOOKUPS for seconds in measured["seconds"].get(kind, ())]


def report(title: str, measured: dict[str, Any], alone: dict[str, Any]) -> int:
    """The number of rightful calls that were not answered."""
    print(f"\n{title}")
    for kind, got in measured["got"].items():
        print(f"  {kind:<18} {', '.join(f'{n:,} × {status}' for status, n in got.items())}")
    for kind, before in {"lookups": lookups(alone), **alone["seconds"]}.items():
        after = lookups(measured) if kind == "lookups" else measured["seconds"].get(kind, [])
        if before and after:
            median, p99 = statistics.median(after) * 1e3, p99_of(after) * 1e3
            ratio = f"{p99_of(after) / p99_of(before):.2f} × the p99 without attackers"
            print(
                f"  {kind:<18} {len(after):6,} answers, median {median:.1f} ms, p99 {p99:.1f} ms: "
                f"{ratio}"
            )
    print("  processors:", ", ".join(f"{who} {n:.2f}" for who, n in measured["cores"].items()))
    late, late_p99 = statistics.median(measured["late"]) * 1e3, p99_of(measured["late"]) * 1e3
    print(f"  clients woke up late by {late:.1f} ms, p99 {late_p99:.1f} ms")
    for name, most_s, times in (
        ("lookups", MOST_LOOKUP_S, lookups(measured)),
        ("/healthz", MOST_HEALTH_S, measured["seconds"]["health"]),
    ):
        word = "below" if p99_of(times) < most_s else "NOT below"
        print(f"  p99 of {name} is {word} {most_s * 1e3:g} ms")
    if measured["failed"]:
        print(f"  {measured['failed']} rightful calls were NOT answered: {measured['why']}")
    return int(measured["failed"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--readers", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--each", action="store_true", help="also each attacker alone")
    parser.add_argument("--beside-constant", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if options.beside_constant:
        return max(beside_constant(kind, options) for kind in options.kinds)
    with tempfile.TemporaryDirectory(prefix="attacks-") as name:
        folder = Path(name)
        database = str(folder / "service.db")
        secret = prepare(database)
        service = Service(database, folder, workers=options.workers, flags=DEFAULTS)
        service.start()
        try:
            alone = measure(service, secret, [], options)
            failed = report("without attackers", alone, alone)
            alone_kinds = [[kind] for kind in options.kinds] if options.each else []
            for kinds in (*alone_kinds, options.kinds):
                title = " ".join(("with", *kinds)) if len(kinds) == 1 else "with all attackers"
                failed += report(title, measure(service, secret, kinds, options), alone)
        finally:
            service.stop()
    return 1 if failed else 0
