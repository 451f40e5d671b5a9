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
            null = os.open(os.devnull, os.O_RDWR)  # the parent waits for the end of its pipes
            for number in (1, 2):
                os.dup2(null, number)
            poll = select.poll()
            poll.register(0, 0)  # hears a hangup only: the requests are the worker's
            poll.poll()
            _clean_up(worker, folder)
        finally:
            os._exit(0)


def _clean_up(worker: int, folder: Path) -> None:
    if os.getppid() == worker:
        kill_family(worker)
    deadline = time.monotonic() + _REMOVE_S
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)  # the dying worker may still write
        time.sleep(0.05)
