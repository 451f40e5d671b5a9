"""What does importing our names cost a program, beside ``import json``?

    python -m benchmarks import_time [--runs 15]

Each statement in interpreters of its own, interleaved; the median of their processor time, and what
it takes beyond one that imports nothing.
"""

import argparse
import subprocess
import sys
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

from rich.console import Console
from rich.table import Table

STATEMENTS = (
    "pass",
    "import json",
    "import autotune",
    "from autotune import Kernel, block",
    "from autotune import Client",
    "from autotune import BundleSource, Tuned",
    "from autotune import tunable",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    times: dict[str, list[float]] = {statement: [] for statement in STATEMENTS}
    for _ in range(runs + 1):
        for statement, taken in times.items():
            taken.append(_milliseconds(statement))
    bare = median(times["pass"][1:])
    table = Table("statement", "ms", "beyond nothing")
    for statement, taken in times.items():
        middle = median(taken[1:])  # the first one may compile bytecode
        table.add_row(statement, f"{middle:.1f}", f"{middle - bare:.1f}")
    Console().print(f"Python {sys.version.split()[0]}, median of {runs}", table)


def _milliseconds(statement: str) -> float:
    """Processor time: what else runs here changes it little."""
    before = _children_s()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return (_children_s() - before) * 1e3


def _children_s() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
