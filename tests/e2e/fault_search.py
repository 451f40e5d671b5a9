"""One search over all faults, through the real engine. A benchmark starts it too."""

import json
import os
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.key import Chip
from autotune.domain.record import Trial
from autotune.estimating.space import Space
from autotune.searching.subject import SearchLimits, SearchResult, describe_subject, explore_space
from autotune.wording.outcome import group_text, reason_of
from autotune_db import open_store
from tests.e2e.leftovers import wait_for_none
from tests.samples.searching import run_search

KERNEL_FILE = Path(__file__).parents[1] / "samples" / "faulty_kernel.py"
MEMORY_BYTES = 1000 << 20
_OUT_OF_MEMORY = "out of memory: killed at the limit of 1.0 GiB"

# What becomes of each candidate that is compiled: its outcome, and words of the reason.
EXPECTED = {
    "works": ("estimated", "limited by"),
    "aborts": ("crashed", "SIGABRT (Aborted)"),
    "segfaults": ("crashed", "SIGSEGV (Segmentation fault)"),
    "kills itself": ("crashed", "SIGKILL (Killed)"),
    "exits with 0": ("crashed", "exit code 0 in the middle of its work"),
    "hangs": ("timed out", "no answer within"),
    "hangs deaf": ("timed out", "no answer within"),
    "hangs with children": ("timed out", "no answer within"),
    "eats memory": ("crashed", _OUT_OF_MEMORY),
    "eats memory in children": ("crashed", _OUT_OF_MEMORY),
    "raises": ("compile failed", "the kernel gives up, in ünïcode ✗"),
    "raises SystemExit": ("compile failed", "kernel raised SystemExit: 3"),
    "raises KeyboardInterrupt": ("compile failed", "kernel raised KeyboardInterrupt"),
    "prints garbage": ("estimated", "limited by"),
    "writes to fd 1": ("estimated", "limited by"),
    "reads stdin": ("estimated", "limited by"),
    "prints for ever": ("timed out", "no answer within"),
    "works again": ("estimated", "limited by"),
}
# Those that fail while the space is traced are refused there, counted by reason.
REFUSED = {
    "aborts while tracing": "SIGABRT (Aborted)",
    "hangs while tracing": "no answer within",
    "eats memory while tracing": _OUT_OF_MEMORY,
    "raises while tracing": "trace raised RuntimeError: the kernel gives up",
    "exits while building": "kernel raised SystemExit: 3",
    "kills itself while building": "SIGKILL (Killed)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    space: Space
    result: SearchResult
    kept: dict[str, Trial]
    """By behaviour, as the database has them afterwards."""


@contextmanager
def temporary_folder(folder):
    """All temporary files of this process and its children go to ``folder``."""
    before = os.environ.get("TMPDIR")
    folder.mkdir(exist_ok=True)
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
    try:
        yield folder
    finally:
        tempfile.tempdir = None
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


def search_faults(folder, *, limit_s):
    """Every behaviour once, on v5e, in a database of its own. ``limit_s``: for one candidate."""
    ref = find_kernel(f"{KERNEL_FILE}:KERNEL")
    with CompilerPool(limit_s=limit_s, memory_bytes=MEMORY_BYTES) as pool:
        subject = describe_subject(pool, ref, Chip.V5E, ProblemWords(shape="n=8192"))
        space = explore_space(pool, subject, lambda *_: None)
        with open_store(str(folder / "faults.db"), create=True) as store:
            result = run_search(pool, store, subject, space, SearchLimits())
            kept = {str(t.config["behaviour"]): t for t in store.trials(subject.key)}
    return Run(space=space, result=result, kept=kept)


def main(folder, limit_s):
    """Prints what became of all candidates as JSON."""
    with temporary_folder(Path(folder, "tmp")) as temporary:
        run = search_faults(Path(folder), limit_s=float(limit_s))
        processes, folders, _ = wait_for_none(temporary, 60.0)
    trials = {
        name: {"kind": t.outcome.kind, "reason": reason_of(t.outcome), "seconds": t.seconds}
        for name, t in run.kept.items()
    }
    data = {
        "stopped_by": run.result.stopped_by,
        "trials": trials,
        "expected": EXPECTED,
        "refused": {group_text(group): n for group, n in run.space.refused.items()},
        "expected_refusals": REFUSED,
        "left": [*processes, *folders],
    }
    print(json.dumps(data))


if __name__ == "__main__":
    main(*sys.argv[1:])
