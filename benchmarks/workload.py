"""How much sooner is a workload tuned than its problems one by one, with which winners?

    python -m benchmarks workload [--problems 6] [--chips v5e,v6e] [--trials 12] [--write]

The first problems of a list of twelve small ones, on each chip: one `autotune search` after
another, each with a database of its own as on so many machines; the same with one database; then
one `autotune tune` with as many trials; then that once more. Seconds are of processors, the
compilers' included: the wall clock says little on a busy machine. Exit code 1 when `tune` takes
more than 40 % of those with one database, when a winner is more than 3 % slower than that of a
search alone, or when the finished workload takes more than two seconds. A winner is what was
published: of estimates that cannot be told apart it need not be the fastest, so these are compared,
too. ``--write``: into docs/results.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

from rich.console import Console
from rich.table import Table

from autotune.domain.codec import from_data
from autotune.domain.key import Key
from autotune.domain.workload import Workload, WorkloadProblem, workload_text
from autotune_db import open_store
from benchmarks.harness.asked import DRIVER, START
from benchmarks.harness.documents import markdown_table, show

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
_MOST_TIME = 0.40
_MOST_SLOWER = 1.03
_MOST_AGAIN_S = 2.0
_PARTS = {
    "compile": "compiling candidates",
    "verify": "verifying",
    "baseline": "compiling plain XLA",
    "trace": "tracing",
    START: START,
    DRIVER: "the driver: imports, predictions, database",
}
_WAYS = {
    "apart.log": "one by one",
    "single.log": "one by one, one database",
    "whole.log": "together",
}
_console = Console(width=130)

Times = dict[tuple[str, str], tuple[float | None, float | None]]
"""By problem and chip, in microseconds: of what was published, and of the fastest trial."""


def main() -> int:
    options = _options()
    chips, problems = options.chips.split(","), _PROBLEMS[: options.problems]
    with tempfile.TemporaryDirectory(prefix="workload-") as name:
        folder = Path(name)
        apart_s, single = _one_by_one(folder, problems, chips, options.trials, apart=True)
        single_s, _ = _one_by_one(folder, problems, chips, options.trials)
        file = folder / "workload.toml"
        file.write_text(_workload(problems, chips))
        whole_s, whole = _together(folder, file, problems, chips, options.trials)
        again_s = _again(folder, file, options.trials)
        parts = [_parts(folder / name) for name in _WAYS]
    table = Table("problem", "chip", "alone, µs", "fastest", "in the workload, µs", "fastest")
    for (problem, chip), times in single.items():
        table.add_row(problem, chip, *map(_said, (*times, *whole[problem, chip])))
    _console.print(table)
    pairs = [list(zip(times, whole[key], strict=True)) for key, times in single.items()]
    slower, behind = (sum(not _as_good(*both[n]) for both in pairs) for n in (0, 1))
    share = whole_s / single_s
    text = (
        "## A workload beside single searches\n\n"
        f"{len(single)} searches of {options.trials} trials at most, {len(problems)} problems on "
        f"{options.chips}: {apart_s:.0f} s of processors one by one, {single_s:.0f} s with one "
        f"database, {whole_s:.0f} s together: {whole_s / apart_s:.0%} and {share:.0%}.\n"
        f"{slower} winners are more than 3 % slower, and {behind} of the fastest "
        f"trials. The finished workload once more: {again_s:.1f} s.\n\n{_parts_table(*parts)}"
    )
    show(text, "results/whole-model.md", "workload", write=options.write)
    return int(share > _MOST_TIME or bool(slower) or again_s > _MOST_AGAIN_S)


def _again(folder: Path, file: Path, trials: int) -> float:
    return _autotune(folder / "again.log", folder / "whole.db", trials, "tune", str(file))[0]


def _parts(log: Path) -> Counter[str]:
    """Processor seconds of each part."""
    seconds = Counter[str]()
    for line in log.read_text().splitlines():
        kind, spent_s = json.loads(line)
        seconds[_PARTS.get(kind, "other questions")] += spent_s
    return seconds


def _parts_table(*ways: Mapping[str, float]) -> str:
    names = [*dict.fromkeys(_PARTS.values()), "other questions"]
    rows = [[name, *(f"{way[name]:.0f}" for way in ways)] for name in names]
    return markdown_table(["processor seconds", *_WAYS.values()], *rows)


def _options() -> argparse.Namespace:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--problems", type=int, default=6, choices=range(1, len(_PROBLEMS) + 1))
    parser.add_argument("--chips", default="v5e,v6e")
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


def _one_by_one(
    folder: Path,
    problems: Sequence[tuple[str, str]],
    chips: Sequence[str],
    trials: int,
    *,
    apart: bool = False,
) -> tuple[float, Times]:
    seconds, times = 0.0, Times()
    log = folder / ("apart.log" if apart else "single.log")
    for kernel, shape in problems:
        for chip in chips:
            asked = ("search", kernel, "--shape", shape, "--chip", chip)
            database = folder / (f"{kernel} {shape} {chip}.db" if apart else "single.db")
            spent_s, done = _autotune(log, database, trials, *asked)
            winner, top = done["winner"], done["top"]
            time_us = winner and winner["outcome"]["estimate"]["time_us"]
            fastest_us = top[0]["outcome"]["estimate"]["time_us"] if top else None
            times[f"{kernel} {shape}", chip] = time_us, fastest_us
            seconds += spent_s
    return seconds, times


def _workload(problems: Sequence[tuple[str, str]], chips: Sequence[str]) -> str:
    listed = tuple(WorkloadProblem(kernel=kernel, shape=shape) for kernel, shape in problems)
    return workload_text(Workload(problems=listed, chips=tuple(chips)))


def _together(
    folder: Path, file: Path, problems: Sequence[tuple[str, str]], chips: Sequence[str], trials: int
) -> tuple[float, Times]:
    seconds, done = _autotune(folder / "whole.log", folder / "whole.db", trials, "tune", str(file))
    names = [(f"{kernel} {shape}", chip) for kernel, shape in problems for chip in chips]
    with open_store(str(folder / "whole.db")) as store:
        keys = [from_data(Key, problem["key"]) for problem in done["problems"]]
        made = [[trial.estimate for trial in store.trials(key)] for key in keys]
    fastest = [
        min((estimate.time_us for estimate in estimates if estimate), default=None)
        for estimates in made
    ]
    times = zip((problem["after_us"] for problem in done["problems"]), fastest, strict=True)
    return seconds, dict(zip(names, times, strict=True))


def _autotune(log: Path, database: Path, trials: int, *asked: str) -> tuple[float, dict[str, Any]]:
    """Processor seconds of a command, and what it prints; both ways pay for the start of the
    process."""
    limits = ("--trials", str(trials), "--db", str(database), "--json")
    command = [sys.executable, "-m", "benchmarks.harness.asked", str(log), *asked, *limits]
    before = getrusage(RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    after = getrusage(RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(asked)} failed:\n{done.stderr}")
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    answer: dict[str, Any] = json.loads(done.stdout)
    return spent_s, answer


def _said(time_us: float | None) -> str:
    return "no winner" if time_us is None else f"{time_us:.2f}"


def _as_good(alone_us: float | None, whole_us: float | None) -> bool:
    return alone_us is None or (whole_us is not None and whole_us <= _MOST_SLOWER * alone_us)
