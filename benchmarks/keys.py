"""How fast are keys kept and exported where there are many?

    python -m benchmarks keys [--keys 10000] [--write]

One search of a small problem, then its trial and its record for as many other sizes, one after
another, as a search keeps them; and the same bytes by SQLite alone, a commit for each. Then all of
them are exported. ``--write``: into docs/results.
"""

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from autotune.domain.record import Record, Trial
from autotune_db import SqlStore, open_store
from benchmarks.harness.documents import show

_SIZE = "65536"
_COMMITS = 2  # of a key: its trial, its record
_FORMATS = ("bundle", "json", "csv")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    part = options.keys // 10
    with tempfile.TemporaryDirectory(prefix="keys-") as name:
        folder = Path(name)
        small = folder / "small.db"
        _run("search", "vector_add", "--shape", _SIZE, "--chip", "v5e", "--trials", "3", db=small)
        with open_store(str(small)) as store:
            (record,) = store.records()
            trial = store.trials(record.key)[0]
        many = folder / "many.db"
        with open_store(str(many), create=True) as store:
            rates = [_saved(store, record, trial, n, part) for n in range(0, options.keys, part)]
        alone = _commits(folder / "alone.db", _COMMITS * part) / _COMMITS
        exports = [(form, _exported(folder / form, form, many)) for form in _FORMATS]
    (first, cpu), (last, last_cpu) = rates[0], rates[-1]
    seconds = ", ".join(f"{used_s:.1f} s ({form})" for form, used_s in exports)
    text = (
        f"## Many keys\n\nWith a load of {os.getloadavg()[0]:.0f} on {os.cpu_count()} processors "
        f"the first {part:,} of {options.keys:,} keys were kept at {first:.0f} a second,\nthe last "
        f"at {last:.0f} ({cpu:.0f} and {last_cpu:.0f} by processor time). As many commits of "
        f"SQLite alone allow {alone:.0f}.\nExports of all take {seconds} of processor."
    )
    show(text, "results/whole-model.md", "keys", write=options.write)
    return 0


def _saved(
    store: SqlStore, record: Record, trial: Trial, first: int, count: int
) -> tuple[float, float]:
    """Keys a second, and a second of processor."""
    began, used = time.monotonic(), sum(os.times()[:2])
    for number in range(first, first + count):
        key = replace(record.key, problem=record.key.problem.with_dims(n=1024 * (number + 1)))
        store.save_trials(key, [trial])
        store.save_record(replace(record, key=key))
    return count / (time.monotonic() - began), count / (sum(os.times()[:2]) - used)


def _commits(file: Path, count: int) -> float:
    """A second."""
    began = time.monotonic()
    with sqlite3.connect(file) as database:
        database.execute("pragma journal_mode=wal")
        database.execute("create table rows (row blob)")
        for _ in range(count):
            database.execute("insert into rows values (?)", (b"x" * 2048,))
            database.commit()
    return count / (time.monotonic() - began)


def _exported(file: Path, form: str, database: Path) -> float:
    """Seconds of processor."""
    before = sum(getrusage(RUSAGE_CHILDREN)[:2])
    _run("export", str(file), "--format", form, db=database)
    return sum(getrusage(RUSAGE_CHILDREN)[:2]) - before


def _run(*words: str, db: Path) -> None:
    command = [sys.executable, "-m", "autotune", *words, "--db", str(db)]
    subprocess.run(command, check=True, capture_output=True)
