"""What remains when the parent was killed: end the compiler, remove its folder."""

import os
import select
import shutil
import time
from pathlib import Path

from autotune.compiling.process_tree import kill_family

_REMOVE_S = 5.0


def stand_guard(folder: Path) -> None:
    """Fork a process that ends this one as soon as nobody is left to write to its stdin.

    A thread would not do: a candidate that blocks in C holds the interpreter's lock. Call it
    before anything starts a thread.
    """
    worker = os.getpid()
    if os.fork() == 0:
        try:
            os.setsid()
            _silence()
            _wait_for_hangup()
            _clean_up(worker, folder)
        finally:
            os._exit(0)


def _silence() -> None:
    """Hold none of the parent's pipes but stdin: the parent waits for their end."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(null, number)


def _wait_for_hangup() -> None:
    """Nothing is read: the requests are the worker's."""
    poll = select.poll()
    poll.register(0, 0)
    poll.poll()


def _clean_up(worker: int, folder: Path) -> None:
    if os.getppid() == worker:
        kill_family(worker)
    deadline = time.monotonic() + _REMOVE_S
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)  # the dying worker may still write
        time.sleep(0.05)
