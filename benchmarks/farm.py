"""How busy does one driver keep the compilers of a Ray cluster, and what limits it?

    python -m benchmarks farm [--slots 64] [--seconds 1 2 4] [--rounds 20] [--real]

A local cluster of four nodes, for each time one, whose compilers only sleep for that time, and then
answer as the real one did for matmul on v5e:

- candidates per second with 1 slot, 2, 4 … of them, handed out as soon as one is free: the share of
  the time in which slots work, and the driver's processor time for each candidate;
- whole searches (proposal, commit and all) over all slots;
- the same searches fed with answers as fast as they take them: the most that one driver can do.

``--real`` instead: two nodes of one slot each against two compilers of this machine, with the real
compiler. Exit code 1 when all slots are less than 95 % busy, a search takes more than 4 ms of the
driver for each candidate, or ``--real`` is more than 10 % slower.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from autotune.compiling.farm.pool import RayPool
from autotune.compiling.pool import CompilerPool, PooledCompilers
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import to_data
from autotune.domain.compilers import Attempt
from autotune.domain.key import Chip
from autotune.domain.problem import Config
from autotune.estimating.space import Space
from autotune.searching.one_config import compile_config
from autotune.searching.subject import SearchLimits, Subject, describe_subject, explore_space
from autotune_db import open_store
from benchmarks.harness.searching import run_search

_SLEEPING = Path(__file__).parents[1] / "tests" / "fakes" / "worker.py"
_NODES = 4
_BUSY, _DRIVER_MS, _SLOWER = 0.95, 4.0, 1.10
_REAL = 24  # candidates
_MOST_WARMING = 30  # rounds
_console = Console(width=130)


def main() -> int:
    options = _options()
    _console.print(f"load on this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with CompilerPool(2) as pool:
        ref = find_kernel("matmul")
        subject = describe_subject(pool, ref, Chip.V5E, ProblemWords(shape="2048x2048x2048"))
        space = explore_space(pool, subject, lambda *_: None)
        if options.real:
            return _real(pool, subject, space)
        answer = compile_config(pool, subject, space.default).result()
    missed = False
    for seconds in options.seconds:
        with tempfile.TemporaryDirectory(prefix="farm-") as name:
            missed |= _sleeping(Path(name), subject, space, answer, seconds, options)
    return int(missed)


def _options() -> argparse.Namespace:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--real", action="store_true")
    return parser.parse_args()


@contextmanager
def _cluster(nodes: int, slots: int, **pool: Any) -> Iterator[RayPool]:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(nodes):
        cluster.add_node(num_cpus=slots, memory=slots * 8 << 30, wait=False)
    try:
        cluster.wait_for_nodes()
        began = time.monotonic()
        with RayPool(cluster.address, **pool) as farm:
            _console.print(f"{farm.size} slots are ready after {time.monotonic() - began:.0f} s")
            yield farm
    finally:
        cluster.shutdown()


def _sleeping(
    folder: Path,
    subject: Subject,
    space: Space,
    answer: Attempt,
    seconds: float,
    options: argparse.Namespace,
) -> bool:
    """Whether a bar is missed with compilers that take so long."""
    _console.print(f"candidates of {seconds:g} s")
    assert isinstance(answer.answer, tuple)
    (folder / "answer").write_text(json.dumps([to_data(part) for part in answer.answer]))
    os.environ["FAKE_COMPILED"] = str(folder / "answer")
    os.environ["FAKE_SLEEP_MS"] = str(round(seconds * 1000))
    _line("", "slots", "candidates", "candidates/s", "busy", "driver, ms each")
    with _cluster(_NODES, options.slots // _NODES, worker=_SLEEPING) as farm:

        def compile_one(number: int) -> Future[Attempt]:
            config = space.candidates[number % len(space.candidates)].config
            return compile_config(farm, subject, config)

        _warm_up(compile_one, farm.size, seconds)
        slots = 1
        while slots <= farm.size:
            run = partial(_hand_out, compile_one, slots * options.rounds, slots)
            busy, _ = _row("handed out", slots, seconds, run)
            slots *= 2
        driver_ms = []
        count = min(farm.size * options.rounds, len(space.candidates))
        for method in ("random", "gp"):
            with _search_of(folder, subject, space, farm, method, count) as search:
                driver_ms.append(_row(f"search, {method}", farm.size, seconds, search)[1])
    fed = _FedCompilers(answer, options.slots)
    for method in ("random", "gp"):
        with _search_of(folder, subject, space, fed, method, count) as search:
            _row(f"fed, {method}", options.slots, 0.0, search)
    return busy < _BUSY or max(driver_ms) > _DRIVER_MS


def _warm_up(start: Callable[[int], Future[Attempt]], slots: int, sleep_s: float) -> None:
    """Slots that are late, and children, which start on first use, would be counted as idle."""
    for _ in range(_MOST_WARMING):
        began = time.monotonic()
        _hand_out(start, slots, slots)
        if time.monotonic() - began < 1.5 * sleep_s:
            return


def _row(what: str, slots: int, sleep_s: float, run: Callable[[], int]) -> tuple[float, float]:
    """The share of the time in which slots work, and milliseconds of the driver for each."""
    wall, processor = time.monotonic(), time.process_time()
    count = run()
    wall, processor = time.monotonic() - wall, time.process_time() - processor
    busy, each_ms = count * sleep_s / (slots * wall), 1e3 * processor / count
    shown = f"{busy:.1%}" if sleep_s else ""
    _line(what, str(slots), str(count), f"{count / wall:.1f}", shown, f"{each_ms:.2f}")
    return busy, each_ms


def _line(what: str, *columns: str) -> None:
    """At once: the whole takes minutes."""
    _console.print(f"{what:<16}" + "".join(f"{column:>16}" for column in columns))


def _hand_out(start: Callable[[int], Future[Attempt]], count: int, slots: int) -> int:
    numbers = iter(range(count))
    running = {start(number) for number in islice(numbers, slots)}
    while running:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        running |= {start(number) for number in islice(numbers, len(done))}
    return count


@contextmanager
def _search_of(
    folder: Path, subject: Subject, space: Space, compilers: Any, method: str, count: int
) -> Iterator[Callable[[], int]]:
    """A whole search, its database made before."""
    copy = replace(space, candidates=list(space.candidates))
    limits = SearchLimits(trials=count)
    place = folder / f"{method} {type(compilers).__name__}.db"
    with open_store(str(place), create=True) as store:

        def search() -> int:
            result = run_search(compilers, store, subject, copy, limits, method=method)
            return len(result.trials)

        yield search


class _FedCompilers:
    """Answers at once."""

    def __init__(self, answer: Attempt, size: int) -> None:
        self._answer, self.size = answer, size

    def submit(self, _: object) -> Future[Attempt]:
        future: Future[Attempt] = Future()
        future.set_result(self._answer)
        return future


def _real(pool: PooledCompilers, subject: Subject, space: Space) -> int:
    step = max(1, len(space.candidates) // _REAL)
    configs = [candidate.config for candidate in space.candidates[::step]][:_REAL]
    local = _timed(pool, subject, configs)
    pool.close()
    with _cluster(2, 1) as farm:
        remote = _timed(farm, subject, configs)
    _console.print(
        f"{len(configs)} candidates: {local:.1f} s with two compilers here, {remote:.1f} s with "
        f"two nodes of one slot each, {remote / local:.2f} times as long"
    )
    return int(remote > _SLOWER * local)


def _timed(compilers: PooledCompilers, subject: Subject, configs: Sequence[Config]) -> float:
    """Both compilers have started and traced once."""
    wait([compile_config(compilers, subject, configs[0]) for _ in range(4)])
    began = time.monotonic()
    wait([compile_config(compilers, subject, config) for config in configs])
    return time.monotonic() - began
