"""Listings of the samples with libtpu's own static estimate of each: what constants are fitted to.

    python -m benchmarks.calibration.corpus --chips v5e,v5p,v6e,v7x

One folder for each libtpu, one compressed listing per point, one line each in ``index.jsonl``. It
only grows: an interrupted run continues where it was. Points that libtpu aborts on or cannot
compile are kept as such, with the reason.
"""

import argparse
import gzip
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, local
from typing import Any

from platformdirs import user_cache_path
from rich.console import Console
from rich.progress import Progress

from autotune.compiling.process import ChildDiedError, ChildTimedOutError, CompilerProcess
from benchmarks.calibration.samples import PROBES, SWEEPS, Sample, find, samples

DEFAULT_FOLDER = user_cache_path("pallas-autotune") / "calibration"
CHIPS = ("v5e", "v5p", "v6e", "v7x")
PROFILE_WORKER = Path(__file__).with_name("profile_worker.py")
_LIMIT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A point with its listing and the cycles that libtpu itself expects, on one core.

    ``seconds``: wall clock of compiling it, libtpu's own simulation included.
    """

    sample: Sample
    chip: str
    libtpu: str
    cycles: int
    seconds: float
    path: Path

    def listing(self) -> str:
        return gzip.decompress(self.path.read_bytes()).decode()


def load(root: Path, chip: str, series: str = "") -> list[Reference]:
    """What was collected for a chip, of one libtpu series or of all.

    ``SystemExit`` with a sentence when there is nothing.
    """
    known = {s.name for s in samples(PROBES + SWEEPS)}
    references = [
        Reference(
            sample=find(row["sample"]),
            chip=chip,
            libtpu=row["libtpu"],
            cycles=row["cycles"],
            seconds=row["seconds"],
            path=folder / row["file"],
        )
        for folder in sorted(root.glob(f"{series}*/"))
        for row in _rows(folder / "index.jsonl")
        if row["chip"] == chip and "cycles" in row and row["sample"] in known
    ]
    if not references:
        sys.exit(
            f"nothing was collected for {chip} in {root}: "
            "run python -m benchmarks.calibration.corpus first"
        )
    return references


def libtpu_of(python: str) -> str:
    """The version of libtpu that an interpreter has; ``SystemExit`` when it has none."""
    code = "from importlib.metadata import version; print(version('libtpu'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{python} has no libtpu")
    return done.stdout.strip()


def _rows(index: Path) -> list[dict[str, Any]]:
    if not index.is_file():
        return []
    return [json.loads(line) for line in index.read_text().splitlines() if line.endswith("}")]


def collect(folder: Path, chips: Sequence[str], python: str) -> Iterator[dict[str, Any]]:
    """Compile what is missing, two at a time; yields one row per point, kept before it is told."""
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / "index.jsonl"
    done = {(row["chip"], row["sample"]) for row in _rows(index)}
    todo = [(c, s) for c in chips for s in samples(PROBES + SWEEPS) if (c, s.name) not in done]
    lock, mine, children = Lock(), local(), []

    def one(chip: str, sample: Sample) -> dict[str, Any]:
        if not hasattr(mine, "child"):
            mine.child = CompilerProcess(python, worker=PROFILE_WORKER)
            children.append(mine.child)
        row = _profile(mine.child, folder, chip, sample)
        with lock, index.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return row

    try:
        with ThreadPoolExecutor(2) as threads:
            pending = [threads.submit(one, chip, sample) for chip, sample in todo]
            yield from (future.result() for future in as_completed(pending))
    finally:
        for child in children:
            child.close()


def _profile(child: CompilerProcess, folder: Path, chip: str, sample: Sample) -> dict[str, Any]:
    row = {"chip": chip, "sample": sample.name}
    try:
        answer = child.ask(row, _LIMIT_S)
    except (ChildDiedError, ChildTimedOutError) as error:
        return {**row, "error": str(error)}
    if "error" in answer:
        return {**row, "error": answer["error"]}
    name = hashlib.sha256(f"{chip} {sample.name}".encode()).hexdigest()[:16] + ".txt.gz"
    (folder / name).write_bytes(gzip.compress(answer.pop("listing").encode(), 6))
    return {**row, **answer, "file": name}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--chips", default=",".join(CHIPS))
    parser.add_argument("--python", default=sys.executable, help="interpreter with the JAX to use")
    options = parser.parse_args()
    chips = options.chips.split(",")
    console, failed = Console(), []
    folder = options.folder / libtpu_of(options.python)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("compiling", total=None)
        for number, row in enumerate(collect(folder, chips, options.python), start=1):
            bar.update(task, completed=number)
            if "error" in row:
                failed.append(row)
            if not console.is_terminal and number % 20 == 0:
                print(f"{number} points", flush=True)
    for row in failed:
        print(f"{row['chip']} {row['sample']}: {row['error']}")
    for chip in chips:
        print(f"{chip}: {len(load(options.folder, chip, folder.name))} points")


if __name__ == "__main__":
    main()
