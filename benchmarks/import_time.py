"""What do importing our names and a lookup in a database cost a program, beside ``import json``?

    python -m benchmarks import_time [--runs 15]

Each statement in interpreters of its own, interleaved; the median of their processor time, and what
it takes beyond one that imports nothing.
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

from rich.console import Console
from rich.table import Table

from autotune_db import open_store
from benchmarks.harness.servers import SPEC, sample

STATEMENTS = (
    "pass",
    "import json",
    "import autotune",
    "from autotune import Kernel, block",
    "from autotune import Client",
    "from autotune import BundleSource, Tuned",
    "from autotune import tunable",
    "import sqlalchemy",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        measured = dict(zip(STATEMENTS, STATEMENTS, strict=True)) | {
            "autotune lookup": _lookup(Path(folder, "x.db"))
        }
        times: dict[str, list[float]] = {name: [] for name in measured}
        for _ in range(runs + 1):
            for name, taken in times.items():
                taken.append(_milliseconds(measured[name]))
    bare = median(times["pass"][1:])
    table = Table("statement", "ms", "beyond nothing")
    for statement, taken in times.items():
        middle = median(taken[1:])  # the first one may compile bytecode
        table.add_row(statement, f"{middle:.1f}", f"{middle - bare:.1f}")
    Console().print(f"Python {sys.version.split()[0]}, median of {runs}", table)


def _lookup(file: Path) -> str:
    """The command, of a record that is published there."""
    spec = replace(SPEC, name="mm")  # a kernel that is not installed here
    keys = [replace(sample(number).key, kernel=spec.name) for number in range(2)]
    records = [replace(sample(0), key=key) for key in keys]
    with open_store(str(file), create=True) as store:
        store.save_kernel(spec)
        for record in records:
            store.save_record(record)
    key = keys[0]
    shape = "x".join(str(size) for _, size in key.problem.dims)
    arguments = ["lookup", key.kernel, "--shape", shape, "--chip", key.chip.value]
    named = asdict(key.toolchain).items()
    versions = ",".join(f"{name}={value}" for name, value in named if name != "options")
    arguments += ["--toolchain", versions, "--db", str(file)]
    return f"from autotune.cli.main import main; main({arguments!r})"


def _milliseconds(statement: str) -> float:
    """Processor time: what else runs here changes it little."""
    before = _children_s()
    subprocess.run([sys.executable, "-c", statement], check=True, stdout=subprocess.DEVNULL)
    return (_children_s() - before) * 1e3


def _children_s() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
