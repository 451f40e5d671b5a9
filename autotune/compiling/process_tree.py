"""A process and all that it started: how much memory and time, and an end to all.

By what Linux says of them: the interpreter of a child may lack psutil.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_FAMILY_EVERY_S = _WAITS_EVERY_S = 1.0
_MOST_LIMITS = 10  # of wall clock: threads that wait by turns may hide one that never goes on
_PASSES = 3  # one that forks while its family is killed
_PROC = Path("/proc")
_LISTED = _PROC / "thread-self" / "children"  # a Linux with CONFIG_PROC_CHILDREN
_GONE = (ProcessLookupError, PermissionError, FileNotFoundError)


def family(leader: int) -> set[int]:
    """The session that ``leader`` leads, orphans included, and all descendants of its members."""
    parents: dict[int, int] = {}
    members: set[int] = set()
    for pid in _pids():
        with suppress(*_GONE):
            parent, session = _stat(pid)[1:4:2]
            parents[pid] = int(parent)
            if int(session) == leader:
                members.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= more
    return members


def kill_family(leader: int) -> None:
    """SIGKILL for the family of ``leader``, but not for the process that asks for it."""
    killed = {os.getpid()}
    for _ in range(_PASSES):
        left = family(leader) - killed
        for pid in left:
            with suppress(*_GONE):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return
        killed |= left


def _pids() -> list[int]:
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]


def _stat(pid: int) -> list[bytes]:
    """The fields of ``/proc/PID/stat`` after its name: state, parent, group, session, ..."""
    return (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()


def _listed_family(leader: int) -> set[int]:
    """The family as the kernel lists children, which may miss one that has just come: for a look,
    not for an end. To read every process of the machine takes several times as long, each second
    for each compiler."""
    if not _LISTED.exists():
        return family(leader)
    members, left = set[int](), []
    for pid in _pids():
        with suppress(*_GONE):
            if os.getsid(pid) == leader:
                left.append(pid)
    while left:
        pid = left.pop()
        if pid not in members:
            members.add(pid)
            left += _children(pid)
    return members


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):  # it, or a thread of it, has ended
        for listed in (_PROC / str(pid) / "task").glob("*/children"):
            yield from map(int, listed.read_text().split())


class MemoryWatch:
    """Resident memory of a family, looked at often enough and at little cost."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._others_bytes = 0
        self._look_at = time.monotonic() + _FAMILY_EVERY_S

    def resident_bytes(self) -> int:
        """The root's own is read on each call, that of its descendants about once a second."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _FAMILY_EVERY_S
            self._others_bytes = sum(
                map(_resident_bytes, _listed_family(self._root) - {self._root})
            )
        return self._others_bytes + _resident_bytes(self._root)


class TimeWatch:
    """A limit on the seconds that a process has had: wall clock, but for what it waited for a
    processor while others had them all, so that a limit is the same on a busy machine. Its own
    threads that keep each other waiting count: it has had what they ran."""

    def __init__(self, pid: int, limit_s: float) -> None:
        self._pid, self._limit_s, self._tasks = pid, limit_s, _PROC / str(pid) / "task"
        self._waited_s, self._ran_s, self._waits = 0.0, 0.0, _waits(self._tasks)
        self._started, self._processor_s = time.monotonic(), _processor_s(pid)
        self._look_at = self._started + _WAITS_EVERY_S

    def left_s(self) -> float:
        """Until it may be over, negative where only the wait for a processor keeps it."""
        return self._started + self._limit_s - time.monotonic()

    def is_over(self) -> bool:
        """The waits are looked at about once a second, and before it says yes."""
        now = time.monotonic()
        wall = now - self._started
        if wall > _MOST_LIMITS * self._limit_s:
            return True
        if now >= self._look_at or wall - self._waited_s > self._limit_s:
            self._look_at = now + _WAITS_EVERY_S
            self._look()
        return min(wall, max(wall - self._waited_s, self._ran_s)) > self._limit_s

    def _look(self) -> None:
        """What counts between two looks is the thread that waited longest."""
        waits = _waits(self._tasks)
        longest = max((waits[task] - self._waits.get(task, 0) for task in waits), default=0)
        self._waited_s, self._waits = self._waited_s + longest / 1e9, waits
        self._ran_s = _processor_s(self._pid) - self._processor_s


def _waits(tasks: Path) -> dict[str, int]:
    """Nanoseconds that each thread has waited for a processor (Documentation/scheduler/sched-stats
    of Linux); nothing where the system does not count them."""
    waits = {}
    with suppress(OSError), os.scandir(tasks) as listed:  # a process, or a thread, that has ended
        for task in listed:
            with suppress(OSError):
                waits[task.name] = int(Path(task.path, "schedstat").read_bytes().split()[1])
    return waits


def _processor_s(pid: int) -> float:
    """0 for one that is gone."""
    with suppress(*_GONE):
        user, system = _stat(pid)[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _resident_bytes(pid: int) -> int:
    """0 for one that is gone."""
    with suppress(*_GONE):
        pages = (_PROC / str(pid) / "statm").read_bytes().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0
