"""What remains when the parent was killed: end the compiler, remove its folder."""

import os
import select
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

_REMOVE_S = 5.0
_PASSES = 3  # one that forks while its family is killed


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
        _kill_family(worker)
    deadline = time.monotonic() + _REMOVE_S
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)  # the dying worker may still write
        time.sleep(0.05)


def _kill_family(leader: int) -> None:
    """SIGKILL for the session of ``leader`` and all that its members started, which may have
    sessions of their own. Without psutil: this interpreter may lack it."""
    killed = {os.getpid()}
    for _ in range(_PASSES):
        left = _family(leader) - killed
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= left


def _family(leader: int) -> set[int]:
    parents: dict[int, int] = {}
    family: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            pid, parent, session = int(stat.parent.name), int(fields[1]), int(fields[3])
            parents[pid] = parent
            if session == leader:
                family.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family
