"""A child and all that it started: how much memory and time, and an end to all."""

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

_FAMILY_EVERY_S = 1.0
_PASSES = 3  # one that forks while its family is killed


def family(root: int) -> set[psutil.Process]:
    """The session that ``root`` leads, orphans included, and all descendants of its members."""
    found: dict[int, psutil.Process] = {}
    for pid in (root, *psutil.pids()):
        with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if pid not in found and os.getsid(pid) == root:
                member = psutil.Process(pid)
                found |= {one.pid: one for one in (member, *member.children(recursive=True))}
    return set(found.values())


def kill_family(root: int) -> None:
    """SIGKILL for the family of ``root``."""
    killed: set[psutil.Process] = set()
    for _ in range(_PASSES):
        left = family(root) - killed
        if not left:
            return
        for member in left:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                member.kill()
        killed |= left


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
            others = (member for member in family(self._root) if member.pid != self._root)
            self._others_bytes = sum(map(_resident_bytes, others))
        with suppress(psutil.NoSuchProcess):
            return self._others_bytes + _resident_bytes(psutil.Process(self._root))
        return self._others_bytes


class TimeWatch:
    """Seconds that a process has had: wall clock, but for what it waited for a processor while
    others had them all, so that a limit is the same on a busy machine. Its own threads that keep
    each other waiting count: it has had what they ran."""

    def __init__(self, pid: int) -> None:
        self._pid, self._waited_s, self._waits = pid, 0.0, _waits(pid)
        self._started, self._ran_s = time.monotonic(), _processor_s(pid)

    def seconds(self) -> float:
        """What counts between two calls is the thread that waited longest."""
        waits = _waits(self._pid)
        longest = max((waits[task] - self._waits.get(task, 0) for task in waits), default=0)
        self._waited_s, self._waits = self._waited_s + longest / 1e9, waits
        wall = time.monotonic() - self._started
        return min(wall, max(wall - self._waited_s, _processor_s(self._pid) - self._ran_s))


def _waits(pid: int) -> dict[str, int]:
    """Nanoseconds that each thread has waited for a processor (Documentation/scheduler/sched-stats
    of Linux); nothing where the system does not count them."""
    found = {}
    for stat in Path("/proc", str(pid), "task").glob("*/schedstat"):
        with suppress(OSError):  # a thread that has ended
            found[stat.parent.name] = int(stat.read_text().split()[1])
    return found


def _processor_s(pid: int) -> float:
    with suppress(psutil.NoSuchProcess):
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return 0.0


def _resident_bytes(process: psutil.Process) -> int:
    """0 for one that is gone."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return int(process.memory_info().rss)
    return 0
