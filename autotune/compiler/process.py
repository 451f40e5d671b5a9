"""One compiler child from the parent's side: ask, wait with a limit, kill, start again."""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.compiler import libtpu
from autotune.errors import CompilerUnavailableError

_WORKER = Path(__file__).with_name("worker.py")
_POLL_S = 0.1
_LOG_TAIL_LINES = 12
START_LIMIT_S = 120.0
DEFAULT_MEMORY_BYTES = 8 << 30


class ChildTimedOut(Exception):
    """The child did not answer within the limit and was killed."""


class ChildDied(Exception):
    """The child ended without an answer. ``log_tail``: the last lines that it wrote."""

    def __init__(self, reason: str, log_tail: str) -> None:
        super().__init__(reason)
        self.log_tail = log_tail


class CompilerProcess:
    """A child that is started on first use and again after each death.

    ``python``: the interpreter to run it under. ``memory_bytes``: resident memory above which the
    child is killed. Not for use from two threads at a time, except ``interrupt``.
    """

    def __init__(
        self, python: str = sys.executable, memory_bytes: int = DEFAULT_MEMORY_BYTES
    ) -> None:
        self._python, self._memory_bytes = python, memory_bytes
        self._child: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._interrupted = False

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """The child's answer. Raises ``ChildTimedOut`` or ``ChildDied``; either way the child is
        gone and the next call starts another."""
        child = self._child or self._start()
        try:
            assert child.stdin is not None
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
            answer: dict[str, Any] = json.loads(self._read_line(child, limit_s))
            return answer
        except BrokenPipeError:
            raise self._death(child) from None
        except BaseException:
            self.close()
            raise

    def interrupt(self) -> None:
        """Make a running ``ask`` fail soon. May be called from another thread."""
        self._interrupted = True

    def close(self) -> None:
        """Kill the child with everything that it started and remove its folder."""
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self) -> subprocess.Popen[bytes]:
        folder = Path(tempfile.mkdtemp(prefix="autotune-compiler-"))
        self._folder = folder
        dump = folder / "dump"
        dump.mkdir()
        try:
            with (folder / "log").open("wb") as log:
                self._child = subprocess.Popen(
                    [self._python, "-P", str(_WORKER), str(dump), str(os.getpid())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=libtpu.child_environment(dump, os.environ),
                    start_new_session=True,
                )
        except OSError as error:
            self.close()
            raise CompilerUnavailableError(
                f"the interpreter {self._python} cannot be started: {error.strerror}"
            ) from error
        return self._child

    def _read_line(self, child: subprocess.Popen[bytes], limit_s: float) -> bytes:
        """One line from the child, watching the clock and the child's memory."""
        assert child.stdout is not None
        deadline = time.monotonic() + limit_s
        pieces: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while not (pieces and pieces[-1].endswith(b"\n")):
                if self._interrupted:
                    raise ChildDied("interrupted", "")
                if time.monotonic() > deadline:
                    raise ChildTimedOut(f"no answer within {limit_s:g} s")
                if selector.select(_POLL_S):
                    piece = os.read(child.stdout.fileno(), 1 << 20)
                    if not piece:
                        raise self._death(child)
                    pieces.append(piece)
                elif _resident_bytes(child.pid) > self._memory_bytes:
                    raise ChildDied(
                        f"killed at {self._memory_bytes / 2**30:.1f} GiB of memory", self._log()
                    )
        return b"".join(pieces)

    def _death(self, child: subprocess.Popen[bytes]) -> ChildDied:
        """What to say of a child that closed its pipe."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)
        code = child.returncode
        if code is not None and code < 0:
            reason = f"the compiler process died of {signal.Signals(-code).name}"
        else:
            reason = f"the compiler process ended with exit code {code}"
        log = self._log()
        self.close()
        return ChildDied(reason, log)

    def _log(self) -> str:
        if self._folder is None:
            return ""
        with contextlib.suppress(OSError):
            text = (self._folder / "log").read_bytes()[-8192:].decode(errors="replace")
            return "\n".join(text.splitlines()[-_LOG_TAIL_LINES:])
        return ""


def _resident_bytes(pid: int) -> int:
    """Resident memory of a process, 0 when it is gone or the system has no /proc."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
