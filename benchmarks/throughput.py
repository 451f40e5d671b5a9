"""How many candidates a second, against the two simple ways to compile them?

    python -m benchmarks throughput [--candidates 40] [--seed 0]

The same candidates of matmul and flash_attention on v5e, drawn evenly from the roofline's order:

- pool: our two compiler processes, started once; each candidate is traced, checked, compiled,
  simulated and estimated.
- fresh: the same work and as many side by side, but a fresh process for each candidate.
- serial: plain JAX in one process, one after another: build, lower, compile, nothing else, with
  the final listing, which libtpu prints there (ours are put together from less).

Then the peak resident memory of the parent during a real search. Exit code 1 when it is not below
300 MiB, or when some way failed to answer for a candidate.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from autotune.compiling import libtpu
from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import from_data, to_data
from autotune.domain.compilers import Attempt
from autotune.domain.key import Chip
from autotune.domain.outcome import Crashed, TimedOut
from autotune.domain.problem import Config, Problem
from autotune.searching.one_config import compile_config, outcome_of
from autotune.searching.subject import Subject, describe_subject, explore_space

_CHIP = Chip.V5E
_CASES = {"matmul": "2048x2048x2048", "flash_attention": "1x8x8x2048x2048x128"}
_SEARCHED = ("matmul", "4096x4096x4096")
_SEARCH_TRIALS = 24
_MEMORY_LIMIT_BYTES = 300 << 20
_console = Console(width=130)

Work = tuple[Subject, Config]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How long one way took for all candidates, starts of processes included."""

    name: str
    seconds: float
    answered: int


def main() -> int:
    options = _options()
    if options.serial:
        return _serial_child(Path(options.serial))
    _console.print(f"load on this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    work = _candidates(options.candidates, options.seed)
    ways = [_pool(work), _fresh(work), _serial(work)]
    _print(ways, len(work))
    peak = _peak_of_a_search()
    fits = peak < _MEMORY_LIMIT_BYTES
    limit = f"{_MEMORY_LIMIT_BYTES >> 20} MiB"
    _console.print(
        f"peak of the parent in a search of {' '.join(_SEARCHED)}: {peak / 2**20:.0f} MiB, "
        f"{'below' if fits else 'NOT BELOW'} {limit}"
    )
    return 0 if fits and all(way.answered == len(work) for way in ways) else 1


def _options() -> argparse.Namespace:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--candidates", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serial", help=argparse.SUPPRESS)
    return parser.parse_args()


def _subject(pool: CompilerPool, name: str, shape: str) -> Subject:
    ref = find_kernel(name)
    return describe_subject(pool, ref, _CHIP, ProblemWords(shape=shape))


def _candidates(count: int, seed: int) -> list[Work]:
    work: list[Work] = []
    with CompilerPool() as pool:
        for name, shape in _CASES.items():
            subject = _subject(pool, name, shape)
            space = explore_space(pool, subject, lambda *_: None)
            step = len(space.candidates) / (count // len(_CASES))
            chosen = [space.candidates[int(n * step)] for n in range(count // len(_CASES))]
            work += [(subject, candidate.config) for candidate in chosen]
    Random(seed).shuffle(work)
    return work


def _pool(work: Sequence[Work]) -> Way:
    with CompilerPool(2) as pool:
        return _measured("pool of 2", work, lambda *item: compile_config(pool, *item))


def _fresh(work: Sequence[Work]) -> Way:
    def attempt(subject: Subject, config: Config) -> Attempt:
        with CompilerPool(1) as pool:
            return compile_config(pool, subject, config).result()

    with ThreadPoolExecutor(2) as threads:
        name = "fresh process each, 2 side by side"
        return _measured(name, work, lambda *item: threads.submit(attempt, *item))


def _measured(
    name: str, work: Sequence[Work], job: Callable[[Subject, Config], Future[Attempt]]
) -> Way:
    started = time.monotonic()
    pending = [job(*item) for item in work]
    outcomes = [
        outcome_of(future.result(), subject.chip)
        for future, (subject, _) in zip(pending, work, strict=True)
    ]
    seconds = time.monotonic() - started
    answered = sum(not isinstance(outcome, (Crashed, TimedOut)) for outcome in outcomes)
    return Way(name=name, seconds=seconds, answered=answered)


def _serial(work: Sequence[Work]) -> Way:
    """Runs this benchmark again, with the compiler's environment."""
    rows = [
        {"kernel": s.spec.name, "problem": to_data(s.problem), "config": to_data(c)}
        for s, c in work
    ]
    with tempfile.TemporaryDirectory(prefix="throughput-") as name:
        path = Path(name) / "work.json"
        path.write_text(json.dumps(rows))
        (Path(name) / "dump").mkdir()
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks", "throughput", "--serial", str(path)],
            env=libtpu.child_environment(Path(name) / "dump", os.environ),
            capture_output=True,
            text=True,
        )
        seconds = time.monotonic() - started
    if done.returncode:
        raise SystemExit(f"the serial way failed:\n{done.stderr}")
    answered = int(done.stdout.split()[-1])
    return Way(name="serial, plain JAX in one process", seconds=seconds, answered=answered)


def _serial_child(path: Path) -> int:
    """Prints how many candidates the compiler has answered for, refusals included."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import SingleDeviceSharding

    from autotune.compiling.child.chips import compile_only_device
    from autotune.compiling.child.devices import abstract_mesh
    from autotune.compiling.child.loading import Loader

    device, loader, answered = compile_only_device(_CHIP), Loader(), 0
    for row in json.loads(path.read_text()):
        kernel = loader.kernel(find_kernel(row["kernel"]))
        problem = from_data(Problem, row["problem"])
        function = kernel.build(problem, from_data(Config, row["config"]))
        sharding = SingleDeviceSharding(device)
        specs = [
            jax.ShapeDtypeStruct(a.shape, getattr(jnp, a.dtype), sharding=sharding)
            for a in kernel.inputs(problem)
        ]
        with abstract_mesh(device):
            try:
                jax.jit(function).trace(*specs).lower().compile()
            except Exception as error:  # a refusal is an answer
                print(str(error)[:200], file=sys.stderr)
        answered += 1
    print(answered)
    return 0


def _print(ways: Sequence[Way], count: int) -> None:
    table = Table("way", "seconds", "candidates/s", "the pool is faster by", "answered")
    for way in ways:
        ratio = way.seconds / ways[0].seconds
        rate = f"{count / way.seconds:.2f}"
        table.add_row(way.name, f"{way.seconds:.1f}", rate, f"{ratio:.2f}×", str(way.answered))
    _console.print(table)


def _peak_of_a_search() -> int:
    """Of the process that the user starts, without its compilers, as the kernel counts it."""
    kernel, shape = _SEARCHED
    with tempfile.TemporaryDirectory(prefix="throughput-") as name:
        command = [sys.executable, "-m", "autotune", "search", kernel, "--shape", shape, "--json"]
        command += ["--chip", _CHIP.value, "--trials", str(_SEARCH_TRIALS)]
        command += ["--db", str(Path(name) / "search.db")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        peak = 0
        while process.poll() is None:
            peak = max(peak, _peak_bytes(process.pid))
            time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"the search ended with exit code {process.returncode}")
    return peak


def _peak_bytes(pid: int) -> int:
    """``VmHWM`` is the largest resident memory so far; 0 for a process that has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)
