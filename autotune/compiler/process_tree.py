"""A process and all that it started, seen through /proc: how much memory, and an end to all."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_FAMILY_EVERY_S = 1.0
_PASSES = 3  # one that forks while its family is killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One line of ``/proc``."""

    pid: int
    parent: int
    session: int
    resident_bytes: int


def family(root: int) -> list[Member]:
    """The session that ``root`` leads, orphans included, and all descendants of its members."""
    everyone = list(_processes())
    known = {m.pid for m in everyone if m.session == root}
    size = -1
    while size != len(known):
        size = len(known)
        known |= {m.pid for m in everyone if m.parent in known}
    return [m for m in everyone if m.pid in known]


def kill_family(root: int, *, spare: int = 0) -> None:
    """SIGKILL for the family of ``root``, except ``spare``."""
    killed: set[int] = set()
    for _ in range(_PASSES):
        found = {m.pid for m in family(root)} - killed - {spare}
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return
        killed |= found


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
            members = family(self._root)
            self._others_bytes = sum(m.resident_bytes for m in members if m.pid != self._root)
        found = _member(self._root)
        return self._others_bytes + (found.resident_bytes if found else 0)


def _processes() -> Iterator[Member]:
    with contextlib.suppress(OSError):
        for entry in os.scandir(_PROC):
            found = _member(int(entry.name)) if entry.name.isdigit() else None
            if found:
                yield found


def _member(pid: int) -> Member | None:
    """None when it is gone, or on a system without /proc."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return Member(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        resident_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
    )
