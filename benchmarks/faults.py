"""What does a fault cost a search, and what a ``kill -9`` at any moment?

    python -m benchmarks faults [--kills 20] [--candidate-timeout 40] [--seed 0]

Exit code 1 when anything is lost, compiled twice, damaged or left behind. A candidate that is right
needs a second: the limit is what only a hang reaches, on a busy machine too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_ROOT = Path(__file__).parents[1]
_console = Console(width=150)


def main() -> int:
    options = _options()
    _console.print(f"load on this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        wrong = _all_faults(name, options.candidate_timeout)
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        wrong += _kills(name, options.kills, options.seed)
    for line in wrong:
        _console.print(f"WRONG: {line}", style="red", highlight=False)
    _console.print("nothing was lost" if not wrong else f"{len(wrong)} things are wrong")
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--candidate-timeout", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _answers(module: str, *arguments: object) -> Iterator[dict[str, Any]]:
    """The lines of JSON that a module of the tests prints."""
    command = [sys.executable, "-m", f"tests.e2e.{module}", *map(str, arguments)]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from map(json.loads, process.stdout)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")


def _all_faults(folder: str, limit_s: float) -> list[str]:
    """Search every fault at once, print what became of each, return what is wrong."""
    started = time.monotonic()
    (run,) = _answers("fault_search", folder, limit_s)
    seconds = time.monotonic() - started
    _console.print(_fault_table(run))
    _console.print(
        f"stopped by: {run['stopped_by']}; {seconds:.0f} s; left behind: {len(run['left'])} "
        "processes and folders"
    )
    trials, expected = run["trials"], run["expected"]
    wrong = [f"{name!r} has no trial" for name in expected if name not in trials]
    for name, trial in trials.items():
        kind, words = expected[name]
        if trial["kind"] != kind or words not in trial["reason"]:
            wrong.append(f"{name!r} has another outcome than expected")
    refused = run["expected_refusals"].items()
    wrong += [f"{name!r} was not refused" for name, words in refused if not _refusal(run, words)]
    return [*wrong, *(f"left behind: {what}" for what in run["left"])]


def _fault_table(run: dict[str, Any]) -> Table:
    table = Table("candidate", "outcome", "reason", "seconds", title="All faults in one search")
    for name in run["expected"]:
        if trial := run["trials"].get(name):
            table.add_row(name, trial["kind"], trial["reason"][:90], f"{trial['seconds']:.2f}")
    for name, words in run["expected_refusals"].items():
        table.add_row(name, "refused", _refusal(run, words)[:90], "")
    return table


def _refusal(run: dict[str, Any], words: str) -> str:
    return next((reason for reason in run["refused"] if words in reason), "")


def _kills(folder: str, kills: int, seed: int) -> list[str]:
    """Kill one search again and again, print each time, return what is wrong."""
    wrong = list[str]()
    columns = ("kill", "trials before", "after", "lost", "recompiled", "database", "left")
    table = Table(*columns, "gone after s", title="kill -9 at random moments")
    *killed, last = _answers("killing", folder, kills, seed)
    for number, kill in enumerate(killed, 1):
        counts = (number, kill["before"], kill["after"], kill["lost"], kill["recompiled"])
        state = "fine" if kill["intact"] else "DAMAGED"
        table.add_row(*map(str, counts), state, str(len(kill["left"])), f"{kill['gone_s']:.2f}")
        wrong += _wrong(f"kill {number}", kill)
        wrong += [f"kill {number}: left {what}" for what in kill["left"]]
        wrong += [] if kill["intact"] else [f"kill {number}: the database is damaged"]
    _console.print(table)
    _console.print(
        f"then to its end: exit code {last['code']}, {last['trials']} trials, "
        f"lost: {last['lost']}, recompiled: {last['recompiled']}"
    )
    wrong += _wrong("the last run", last)
    code = last["code"]
    return wrong + ([f"the last run ended with exit code {code}"] if code else [])


def _wrong(when: str, counts: dict[str, Any]) -> list[str]:
    kinds = (("lost", counts["lost"]), ("compiled again", counts["recompiled"]))
    return [f"{when}: {count} trials {what}" for what, count in kinds if count]
