"""How much sooner is a workload tuned than its problems one by one, with which winners?

    python -m benchmarks workload [--problems 4] [--chips v5e,v6e,v7x] [--trials 4]

The first problems of a list of twelve small ones, on each chip: one `autotune search` after
another, then one `autotune tune`, each way with a database of its own and the same number of
trials. Exit code 1 when `tune` takes more than 45 % of the wall clock, or when a
winner is more than 1 % slower. A winner is what was published: of estimates that cannot be told
apart it need not be the fastest, so these are compared, too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from autotune.domain.codec import from_data
from autotune.domain.key import Key
from autotune.domain.workload import Workload, WorkloadProblem, workload_text
from autotune_db import open_store

_PROBLEMS = (
    ("matmul", "512x512x512"),
    ("rmsnorm", "1024x1024"),
    ("flash_attention", "1x4x4x512x512x128"),
    ("vector_add", "65536"),
    ("matmul", "256x1024x512"),
    ("jax_flash_attention", "1x4x512x512x128"),
    ("rmsnorm", "2048x512"),
    ("tiled_dot", "65536"),
    ("matmul", "1024x256x256"),
    ("jax_splash_attention", "4x4x512x128x128"),
    ("flash_attention", "1x8x2x256x512x128"),
    ("vector_add", "1048576"),
)
_MOST_TIME = 0.45
_MOST_SLOWER = 1.01
_console = Console(width=130)

Times = dict[tuple[str, str], tuple[float | None, float | None]]
"""By problem and chip, in microseconds: of what was published, and of the fastest trial."""


def main() -> int:
    options = _options()
    chips, problems = options.chips.split(","), _PROBLEMS[: options.problems]
    _console.print(f"load on this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="workload-") as name:
        folder = Path(name)
        single_s, single = _one_by_one(folder, problems, chips, options.trials)
        whole_s, whole = _together(folder, problems, chips, options.trials)
    table = Table("problem", "chip", "alone, µs", "fastest", "in the workload, µs", "fastest")
    for (problem, chip), times in single.items():
        table.add_row(problem, chip, *map(_said, (*times, *whole[problem, chip])))
    _console.print(table)
    pairs = [list(zip(times, whole[key], strict=True)) for key, times in single.items()]
    slower, behind = (sum(not _as_good(*both[n]) for both in pairs) for n in (0, 1))
    share = whole_s / single_s
    _console.print(
        f"{len(single)} searches: {single_s:.0f} s one by one, {whole_s:.0f} s together, "
        f"{share:.0%}; {slower} winners more than 1 % slower, {behind} of the fastest trials"
    )
    return int(share > _MOST_TIME or bool(slower))


def _options() -> argparse.Namespace:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--problems", type=int, default=4, choices=range(1, len(_PROBLEMS) + 1))
    parser.add_argument("--chips", default="v5e,v6e,v7x")
    parser.add_argument("--trials", type=int, default=4)
    return parser.parse_args()


def _one_by_one(
    folder: Path, problems: Sequence[tuple[str, str]], chips: Sequence[str], trials: int
) -> tuple[float, Times]:
    began, times = time.monotonic(), Times()
    for kernel, shape in problems:
        for chip in chips:
            done = _autotune(
                folder / "single.db", trials, "search", kernel, "--shape", shape, "--chip", chip
            )
            winner, top = done["winner"], done["top"]
            time_us = winner and winner["outcome"]["estimate"]["time_us"]
            fastest_us = top[0]["outcome"]["estimate"]["time_us"] if top else None
            times[f"{kernel} {shape}", chip] = time_us, fastest_us
    return time.monotonic() - began, times


def _together(
    folder: Path, problems: Sequence[tuple[str, str]], chips: Sequence[str], trials: int
) -> tuple[float, Times]:
    problems_of_workload = tuple(
        WorkloadProblem(kernel=kernel, shape=shape) for kernel, shape in problems
    )
    file = folder / "workload.toml"
    file.write_text(workload_text(Workload(problems=problems_of_workload, chips=tuple(chips))))
    began = time.monotonic()
    done = _autotune(folder / "whole.db", trials, "tune", str(file))
    seconds = time.monotonic() - began
    names = [(f"{kernel} {shape}", chip) for kernel, shape in problems for chip in chips]
    with open_store(str(folder / "whole.db")) as store:
        keys = [from_data(Key, problem["key"]) for problem in done["problems"]]
        made = [[trial.estimate for trial in store.trials(key)] for key in keys]
    fastest = [
        min((estimate.time_us for estimate in problems_of_workload if estimate), default=None)
        for problems_of_workload in made
    ]
    times = zip((problem["after_us"] for problem in done["problems"]), fastest, strict=True)
    return seconds, dict(zip(names, times, strict=True))


def _autotune(database: Path, trials: int, *asked: str) -> dict[str, Any]:
    """What a command prints; both ways pay for the start of the process."""
    limits = ("--trials", str(trials), "--db", str(database), "--json")
    command = [sys.executable, "-m", "autotune", *asked, *limits]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(asked)} failed:\n{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _said(time_us: float | None) -> str:
    return "no winner" if time_us is None else f"{time_us:.2f}"


def _as_good(alone_us: float | None, whole_us: float | None) -> bool:
    return alone_us is None or (whole_us is not None and whole_us <= _MOST_SLOWER * alone_us)


if __name__ == "__main__":
    sys.exit(main())
