"""What does a fault cost a search, and what a ``kill -9`` at any moment?

    python -m benchmarks faults [--kills 20] [--candidate-timeout 40] [--seed 0]

Exit code 1 when anything is lost, compiled twice, damaged or left behind. A candidate that is right
needs a second: the limit is what only a hang reaches, on a busy machine too.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from tests.load.fault_search import EXPECTED, REFUSED, Run, search_faults, temporary_folder
from tests.load.killing import Killed, Victim
from tests.load.leftovers import wait_for_none

_LEFT_LIMIT_S = 60.0  # until nothing is left, on a busy machine too
_console = Console(width=150)


def main() -> int:
    options = _options()
    _console.print(f"load on this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        wrong = _all_faults(Path(name), options.candidate_timeout)
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        wrong += _kills(Path(name), options.kills, options.seed)
    for line in wrong:
        _console.print(f"WRONG: {line}", style="red", highlight=False)
    _console.print("nothing was lost" if not wrong else f"{len(wrong)} things are wrong")
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Raw)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--candidate-timeout", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


class _Raw(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of the docstring."""


def _all_faults(folder: Path, limit_s: float) -> list[str]:
    """Search every fault at once, print what became of each, return what is wrong."""
    started = time.monotonic()
    with temporary_folder(folder / "tmp") as temporary:
        run = search_faults(folder, limit_s=limit_s)
        processes, folders, _ = wait_for_none(temporary, _LEFT_LIMIT_S)
    seconds = time.monotonic() - started
    _console.print(_fault_table(run))
    _console.print(
        f"stopped by: {run.result.stopped_by}; {seconds:.0f} s; left behind: {len(processes)} "
        f"processes, {len(folders)} folders"
    )
    lost = set(EXPECTED) - set(run.kept)
    unlike = [b for b in run.kept if not _is_as_expected(run, b)]
    missing = [b for b, words in REFUSED.items() if not _refusals(run, words)]
    return [
        *(f"{b!r} has no trial" for b in lost),
        *(f"{b!r} has another outcome than expected" for b in unlike),
        *(f"{b!r} was not refused" for b in missing),
        *(f"left behind: {what}" for what in (*processes, *folders)),
    ]


def _fault_table(run: Run) -> Table:
    table = Table("candidate", "outcome", "reason", "seconds", title="All faults in one search")
    for behaviour in EXPECTED:
        if behaviour in run.kept:
            trial = run.kept[behaviour]
            reason = trial.outcome.reason[:90]
            table.add_row(behaviour, trial.outcome.kind, reason, f"{trial.seconds:.2f}")
    for behaviour, words in REFUSED.items():
        table.add_row(behaviour, "refused", (_refusals(run, words) or [""])[0][:90], "")
    return table


def _is_as_expected(run: Run, behaviour: str) -> bool:
    kind, words = EXPECTED[behaviour]
    outcome = run.kept[behaviour].outcome
    return outcome.kind == kind and words in outcome.reason


def _refusals(run: Run, words: str) -> list[str]:
    return [reason for reason in run.space.refused if words in reason]


def _kills(folder: Path, kills: int, seed: int) -> list[str]:
    """Kill one search again and again, print each time, return what is wrong."""
    victim, random, wrong = Victim(folder, trials=4 * kills), Random(seed), list[str]()
    table = Table(
        "kill",
        "trials before",
        "after",
        "lost",
        "recompiled",
        "database",
        "left",
        "gone after s",
        title="kill -9 at random moments",
    )
    for number in range(1, kills + 1):
        killed = victim.run_and_kill(random)
        table.add_row(*_row(number, killed))
        wrong += _wrong(f"kill {number}", killed.lost, killed.recompiled)
        wrong += [f"kill {number}: left {what}" for what in killed.left]
        wrong += [] if killed.intact else [f"kill {number}: the database is damaged"]
    code, lost, recompiled = victim.finish()
    _console.print(table)
    _console.print(
        f"then to its end: exit code {code}, {len(victim.kept())} trials, lost: {lost}, "
        f"recompiled: {recompiled}"
    )
    wrong += _wrong("the last run", lost, recompiled)
    return wrong + ([] if code == 0 else [f"the last run ended with exit code {code}"])


def _row(number: int, killed: Killed) -> list[str]:
    state = "fine" if killed.intact else "DAMAGED"
    counts = (number, killed.before, killed.after, killed.lost, killed.recompiled)
    return [*map(str, counts), state, str(len(killed.left)), f"{killed.gone_s:.2f}"]


def _wrong(when: str, lost: int, recompiled: int) -> list[str]:
    found = (("lost", lost), ("compiled again", recompiled))
    return [f"{when}: {count} trials {what}" for what, count in found if count]
