"""A real ``autotune search`` that is killed again and again, and what its database then holds. A
benchmark starts it too."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from tests.e2e.leftovers import wait_for_none

KERNEL = f"{Path(__file__).parents[1] / 'samples' / 'faulty_kernel.py'}:MANY"
GONE_WITHIN_S = 60.0
_START_LIMIT_S = 600.0  # only a hang takes as long
_IS_THERE = "select 1 from sqlite_master where name = 'autotune_trials'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """One kill. ``lost`` and ``recompiled`` are what must be zero; ``gone_s``: until the last child
    and folder had gone."""

    before: int
    after: int
    lost: int
    recompiled: int
    intact: bool
    left: tuple[str, ...]
    gone_s: float


class Victim:
    """Searches of one problem in one database, in ``folder``, one process after another."""

    def __init__(self, folder, trials):
        self.database, self.temporary = folder / "killed.db", folder / "tmp"
        self.trials = trials
        self._log = folder / "compiled.log"
        self.temporary.mkdir()

    def start(self, *more):
        options = f"--shape n=8192 --chip v5e --trials {self.trials} --full".split()
        command = [sys.executable, "-m", "autotune", "search", KERNEL, *options]
        command += ["--db", str(self.database), *more]
        environment = {
            **os.environ,
            "TMPDIR": str(self.temporary),
            "FAULTY_KERNEL_LOG": str(self._log),
        }
        return subprocess.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def kept(self):
        """Trials by number, as config and outcome."""
        if not self.database.exists():
            return {}
        with contextlib.closing(sqlite3.connect(self.database, timeout=30)) as connection:
            if not connection.execute(_IS_THERE).fetchone():
                return {}
            rows = connection.execute("select number, config, outcome from autotune_trials")
            return {number: (config, outcome) for number, config, outcome in rows}

    def intact(self):
        if not self.database.exists():
            return True
        with contextlib.closing(sqlite3.connect(self.database, timeout=30)) as connection:
            found = connection.execute("pragma integrity_check").fetchone()
        return found[0] == "ok"

    def compiled(self):
        return self._log.read_text().splitlines() if self._log.exists() else []

    def wait_for_trials(self, process, count):
        """Until the database holds ``count`` trials, or the process has ended."""
        deadline = time.monotonic() + _START_LIMIT_S
        while len(self.kept()) < count and process.poll() is None:
            assert time.monotonic() < deadline, "the search does not get on"
            time.sleep(0.02)

    def run_and_kill(self, random):
        """Start or resume the search, and ``kill -9`` it at a random moment."""
        before, compiled = self.kept(), len(self.compiled())
        process = self.start()
        if random.random() < 0.8:
            self.wait_for_trials(process, len(before) + random.randint(1, 4))
            time.sleep(random.uniform(0, 0.5))
        else:  # while it starts, asks for the chip, traces
            time.sleep(random.uniform(0, 4))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        processes, folders, gone_s = wait_for_none(self.temporary, GONE_WITHIN_S)
        after = self.kept()
        return Killed(
            before=len(before),
            after=len(after),
            lost=sum(after.get(number) != trial for number, trial in before.items()),
            recompiled=len(_points(before) & set(self.compiled()[compiled:])),
            intact=self.intact(),
            left=(*processes, *folders),
            gone_s=gone_s,
        )

    def finish(self):
        """Exit code of the search that is not killed, trials lost and trials recompiled."""
        before, compiled = self.kept(), len(self.compiled())
        process = self.start()
        process.communicate(timeout=300)
        after = self.kept()
        lost = sum(after.get(number) != trial for number, trial in before.items())
        again = _points(before) & set(self.compiled()[compiled:])
        return process.returncode, lost, len(again)


def _points(trials):
    """What the kernel writes to its log when it compiles these."""
    return {f"rows={json.loads(config)['axes']['rows']}" for config, _ in trials.values()}


def main(folder, kills, seed):
    """Prints each kill and then the end as a line of JSON."""
    victim, random = Victim(Path(folder), trials=4 * int(kills)), Random(int(seed))
    for _ in range(int(kills)):
        print(json.dumps(asdict(victim.run_and_kill(random))), flush=True)
    code, lost, recompiled = victim.finish()
    last = {"code": code, "lost": lost, "recompiled": recompiled, "trials": len(victim.kept())}
    print(json.dumps(last))


if __name__ == "__main__":
    main(*sys.argv[1:])
