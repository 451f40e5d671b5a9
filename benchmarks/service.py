"""How fast is the service, beside a bare ASGI application and a Starlette route?

    python -m benchmarks service [--seconds 3] [--rounds 5] [--many 100000] [--parts routes size]

One uvicorn process each, all with the settings of the service (but its limits for connections),
answering with as many headers and bodies of the same size to the same load generator (keep-alive
connections of this process); rounds are interleaved. The service is asked the same again, and in
bodies that it has not seen yet. Then what the size of the database and new snapshots cost. Then
the client: from the start of an interpreter to 100 configs, beside one that only imports
urllib.request.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path

from autotune.answering.bundle import read_bundle
from autotune.answering.client import ServiceAnswers
from autotune.domain.codec import to_data
from benchmarks.harness.servers import (
    Targets,
    cpu_each,
    fill,
    load,
    never_sent,
    one_answer,
    p99_of,
    publishing,
    request,
    sample,
    server,
)

BATCH = 100
PUBLICATIONS = 8
PARTS = ("routes", "size", "client")


def compare(targets: Targets, seconds: float, rounds: int) -> dict[str, tuple[float, float]]:
    """Calls a second (median of the rounds) and p99 in milliseconds (of all), by application."""
    for port, contents in targets.values():
        load(port, contents, 0.5)
    rates: dict[str, list[float]] = {name: [] for name in targets}
    taken: dict[str, list[float]] = {name: [] for name in targets}
    for number in range(rounds):  # there and back, so that no one is always the first
        for name, (port, contents) in list(targets.items())[:: -1 if number % 2 else 1]:
            times = load(port, contents, seconds)
            rates[name].append(len(times) / seconds)
            taken[name] += times
    return {name: (statistics.median(rates[name]), p99_of(taken[name]) * 1e3) for name in targets}


def print_comparison(title: str, rates: dict[str, tuple[float, float]], answers: int) -> None:
    print(title)
    for name, (rate, p99) in rates.items():
        more = f", {rate * answers:,.0f} answers/s" if answers > 1 else ""
        print(f"  {name:<28} {rate:8,.0f} requests/s{more}   p99 {p99:6.2f} ms")
    names = list(rates)
    for other in names[1:]:
        rate, p99 = (rates[names[0]][n] / rates[other][n] for n in (0, 1))
        print(f"  against {other:<20} {rate:8.1%} of its requests/s, {p99:.2f} × its p99")


def measure_service(folder: Path, arguments: argparse.Namespace) -> None:
    few = fill(folder / "few.db", 100, arguments.trials)
    if "routes" in arguments.parts:
        measure_routes(few, arguments)
    if "size" not in arguments.parts:
        return
    begun = time.perf_counter()
    many = fill(folder / "many.db", arguments.many, arguments.trials)
    seconds, trials = time.perf_counter() - begun, arguments.many * arguments.trials
    print(f"{arguments.many:,} records and {trials:,} trials are written after {seconds:.0f} s")
    measure_size(few, many, arguments)


def measure_routes(few: str, arguments: argparse.Namespace) -> None:
    for count, title in ((1, "one lookup, 100 records"), (BATCH, f"batches of {BATCH}")):
        content = request([sample(number) for number in range(count)])
        with ExitStack() as stack:
            port = stack.enter_context(server("service", few))
            targets: Targets = {
                "service": (port, repeat(content)),
                "service, never sent": (port, never_sent(content)),
            }
            size = str(len(one_answer(port, content)[1]))
            for kind in ("route", "bare"):
                targets[kind] = stack.enter_context(server(kind, size)), repeat(content)
            rates = compare(targets, arguments.seconds, arguments.rounds)
            each = cpu_each(targets, arguments.seconds, arguments.rounds)
        print_comparison(f"{title}, {size} bytes", rates, count)
        for name, seconds in each.items():
            share = f", {each['route'] / seconds:.0%} of the route's rate by it"
            print(f"  {name:<28} {seconds * 1e6:8.0f} µs of processor time{share}")


def measure_size(few: str, many: str, arguments: argparse.Namespace) -> None:
    content = request([sample(0)])
    begun = time.perf_counter()
    with server("service", many) as large:
        print(f"{arguments.many:,} records are loaded after {time.perf_counter() - begun:.1f} s")
        with server("service", few) as small:
            ports = {f"{arguments.many:,} records": large, "100 records": small}
            targets: Targets = {name: (port, never_sent(content)) for name, port in ports.items()}
            rates = compare(targets, arguments.seconds, arguments.rounds)
            print_comparison("one lookup, by the number of records", rates, 1)
            for name, each in cpu_each(targets, arguments.seconds, arguments.rounds).items():
                print(f"  {name:<28} {each * 1e6:8.0f} µs of processor time for each request")
        with server("service", many) as other:
            measure_takeover([large, other], many, content)


def measure_takeover(ports: list[int], database: str, content: bytes) -> None:
    """Publishes while lookups run: the longest that one had to wait, and how long it takes until
    every process answers from the new snapshot."""
    quiet = load(ports[0], never_sent(content), 4.0)
    publisher = publishing(database, ports, PUBLICATIONS)
    busy: list[float] = []
    while publisher.poll() is None:
        busy += load(ports[0], never_sent(content), 2.0)
    reached = json.loads(publisher.communicate()[0])
    print(
        f"the longest lookup: {max(quiet) * 1e3:.1f} ms, {max(busy) * 1e3:.1f} ms while "
        f"{PUBLICATIONS} snapshots were published"
    )
    print(
        f"a new snapshot is in force in all {len(ports)} processes after {max(reached):.2f} s at "
        f"most, {statistics.median(reached):.2f} s at the median"
    )


CLIENT = """
import sys
from autotune.answering.bundle import read_bundle
from autotune.answering.client import ServiceAnswers
from autotune.domain.codec import from_data
from autotune.domain.key import Key
import json
keys = [from_data(Key, data) for data in json.load(open(sys.argv[1]))]
client = ServiceAnswers(sys.argv[2] or None, cache=sys.argv[3] or None, timeout_s=20)
assert {one.kind for one in client.lookup(keys)} == {"exact"}
"""


def measure_client(folder: Path, runs: int) -> None:
    questions, cache = folder / "questions.json", folder / "configs.bundle"
    keys = [sample(number).key for number in range(BATCH)]
    questions.write_text(json.dumps([to_data(key) for key in keys]))
    with server("service", str(folder / "few.db")) as port:
        url = f"http://127.0.0.1:{port}"
        client = ServiceAnswers(url, cache=cache, timeout_s=20, strict=True)
        client.lookup(keys)
        client.refresh()
        assert len(read_bundle(cache).records) == BATCH
        commands = {
            "import urllib.request": ["-c", "import urllib.request"],
            "nothing": ["-c", "pass"],
            f"{BATCH} configs over HTTP": ["-c", CLIENT, str(questions), url, ""],
            f"{BATCH} configs, and the disk": ["-c", CLIENT, str(questions), url, str(cache)],
            f"{BATCH} configs from the disk": ["-c", CLIENT, str(questions), "", str(cache)],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, command in commands.items():
                begun = time.perf_counter()
                subprocess.run([sys.executable, *command], check=True)
                times[name].append(time.perf_counter() - begun)
    least = statistics.median(times["import urllib.request"])
    print(f"from the start of an interpreter, median of {runs}:")
    for name, taken in times.items():
        middle = statistics.median(taken)
        print(f"  {name:<28} {middle * 1e3:6.0f} ms   {middle / least:.2f} ×")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--trials", type=int, default=10, help="for each record")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--runs", type=int, default=15)
    arguments = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        measure_service(Path(folder), arguments)
        if "client" in arguments.parts:
            measure_client(Path(folder), arguments.runs)
