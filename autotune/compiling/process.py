"""One child from the parent's side: ask, wait with a limit, kill, start again. What compiles runs
behind it, and what measures."""

import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.compiling import libtpu, protocol
from autotune.compiling.limits import DEFAULT_MEMORY_BYTES
from autotune.compiling.process_tree import MemoryWatch, TimeWatch, kill_family
from autotune.domain.compiler_options import as_flags, canonical, parsed
from autotune.domain.compilers import Underway
from autotune.domain.errors import CompilerUnavailableError

_CHUNK_BYTES = 1 << 20


def exchange(
    child: subprocess.Popen[bytes], request: bytes, watch: Callable[[], float]
) -> bytes | None:
    """The line that answers ``request``; None when the child has ended without one.

    ``watch`` says after how many seconds it is called once more at the latest, and gives up by
    raising.
    """
    assert child.stdin is not None
    assert child.stdout is not None
    os.set_blocking(child.stdin.fileno(), False)
    left, pieces = memoryview(request), [b""]
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        selector.register(child.stdin, selectors.EVENT_WRITE)
        while not pieces[-1].endswith(b"\n"):
            ready = {key.fileobj for key, _ in selector.select(watch())}
            if child.stdin in ready:
                left = left[_sent(child.stdin.fileno(), left) :]
                if not left:
                    selector.unregister(child.stdin)
            if child.stdout in ready:
                pieces.append(os.read(child.stdout.fileno(), _CHUNK_BYTES))
                if not pieces[-1]:
                    return None
            elif not ready and child.poll() is not None:
                return None  # what it started may hold its pipe open
    return b"".join(pieces)


def _sent(pipe: int, data: memoryview) -> int:
    """How many bytes went; a child that has closed its end takes all: its stdout tells the rest."""
    try:
        return os.write(pipe, data[:_CHUNK_BYTES])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(data)


WORKER = Path(__file__).with_name("child") / "worker.py"
_LEAST_POLL_S, _MOST_POLL_S = 0.1, 0.5  # each look takes a third of a millisecond on a busy machine
_FASTEST = 8 << 30  # bytes a second, by which a child's memory grows
_REAP_S = 5.0
_LOG_TAIL_LINES, _LOG_TAIL_BYTES = 12, 8192
_NEEDED_BYTES = 64 << 20  # the listings of one large kernel, with room to spare

_NOTES = re.compile(r"^(?:I\d{4} |\t).*\n", re.M)  # of libtpu's log what is no warning

Environment = Callable[[Path, Mapping[str, str]], dict[str, str]]


_PRINTING = {protocol.LISTING: libtpu.WHOLE_LISTING, protocol.LINES: libtpu.SOURCE_LINES}


class ChildTimedOutError(Exception):
    """The child did not answer within the limit and was killed."""


class ChildDiedError(Exception):
    """The child ended without an answer. ``log_tail``: the last lines that it wrote meanwhile."""

    def __init__(self, reason: str, log_tail: str) -> None:
        super().__init__(reason)
        self.log_tail = log_tail


class CompilerInterruptedError(Exception):
    """The parent wants no answer any more. It says nothing of the candidate."""


class CompilerProcess:
    """A child that is started on first use and again after each death.

    ``python``: the interpreter to run it under. ``memory_bytes``: resident memory, its own
    descendants included, above which the child is killed. ``worker``: the script that it runs,
    ``environment``: what it sees, from its folder and ours. ``what`` names it in sentences.
    ``given_up``: whether nobody waits for what is asked, looked at in the thread that asks.
    Not for use from two threads at a time, except ``interrupt``.
    """

    def __init__(
        self,
        python: str = sys.executable,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        worker: Path = WORKER,
        environment: Environment = libtpu.child_environment,
        what: str = "compiler process",
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self.python = python
        self._memory_bytes, self._worker = memory_bytes, worker
        self._environment, self._what, self._given_up = environment, what, given_up
        self._child: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._stopped = False
        self._printing = set[str]()  # switches that libtpu is loaded with for good
        self._read_once = set[str]()  # names of compiler options that libtpu takes as it is loaded
        self._loaded_with = ""

    @property
    def running(self) -> bool:
        """Whether the next ``ask`` meets a child that is there already."""
        return self._child is not None

    @property
    def underway(self) -> Underway | None:
        """How far what was asked last is, as the child says, unless the time that was left when it
        said so is over. From any thread."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            file = Path(str(self._folder), protocol.UNDERWAY)
            left, *counts = file.read_text().split()
            left_s = float(left) - max(0.0, time.time() - file.stat().st_mtime)
            return Underway(left_s, *map(int, counts)) if left_s > 0 else None
        return None

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """The child's answer.

        Raises ``ChildTimedOutError`` or ``ChildDiedError``; either way the child is gone and the
        next call starts another. ``CompilerInterruptedError`` after ``interrupt`` and ``close``,
        and where it is given up.
        """
        if self._stopped or self._given_up():
            raise CompilerInterruptedError
        try:
            self._load_with(request.get("options"))
            child = self._child or self._start()
            self._prepare_folder()
            watch = self._watch(child, limit_s)
            data = json.dumps(request).encode() + b"\n"
            line = exchange(child, data, lambda: next(watch))
            answer = self._parsed(child, line)
        except BaseException:
            self.stop()
            raise
        error = answer.get("error")
        stage = error.get("stage") if isinstance(error, dict) else None
        if stage in _PRINTING and _PRINTING[stage] not in self._printing:
            self._printing.add(_PRINTING[stage])  # libtpu reads its switches once
        elif stage == protocol.READ_ONCE and answer["error"]["message"] not in self._read_once:
            self._read_once.add(answer["error"]["message"])
        else:
            return answer
        self.stop()
        return self.ask(request, limit_s)

    def _load_with(self, options: str | None) -> None:
        """Stop a child whose libtpu was loaded with other options than a question needs."""
        if options is not None:
            once = {n: value for n, value in parsed(options).items() if n in self._read_once}
            if (flags := as_flags(canonical(once))) != self._loaded_with:
                self.stop()
                self._loaded_with = flags

    def interrupt(self) -> None:
        """Make a running ``ask`` fail soon, and every later one at once. May be called from
        another thread."""
        self._stopped = True

    def close(self) -> None:
        """Kill the child with everything that it started and remove its folder, for good."""
        self._stopped = True
        self.stop()

    def stop(self) -> None:
        """The same, but the next ``ask`` starts another child. What Ctrl-C cuts short can be
        called again."""
        child = self._child
        if child is not None:
            kill_family(child.pid)
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_REAP_S)
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self._child = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _start(self) -> subprocess.Popen[bytes]:
        with _no_folder():
            self._folder = folder = Path(tempfile.mkdtemp(prefix="autotune-compiler-", dir=_temp()))
            dump = folder / "dump"
            dump.mkdir()
            log = (folder / "log").open("ab")  # appending: the log is cut while it is written
        try:
            with log:
                self._child = subprocess.Popen(
                    [self.python, "-P", "-u", str(self._worker), str(dump)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    bufsize=0,
                    env=self._environment(dump, {**os.environ, **self._switches()}),
                    start_new_session=True,
                )
        except OSError as error:
            raise CompilerUnavailableError(
                f"the interpreter {self.python} cannot be started: {error.strerror}"
            ) from error
        return self._child

    def _switches(self) -> dict[str, str]:
        once = {libtpu.READ_ONCE: self._loaded_with} if self._loaded_with else {}
        return {**dict.fromkeys(self._printing, "1"), **once}

    def _prepare_folder(self) -> None:
        """Room for the listings, and a log that holds one request: it would grow without end."""
        assert self._folder is not None
        with _no_folder():
            os.truncate(self._folder / "log", 0)
            (self._folder / protocol.UNDERWAY).unlink(missing_ok=True)
            free = shutil.disk_usage(self._folder).free
        if free < _NEEDED_BYTES:
            raise CompilerUnavailableError(
                f"only {free >> 20} MiB are free in {self._folder.parent}, the compiler needs "
                f"{_NEEDED_BYTES >> 20} for its listings: make room, or set TMPDIR"
            )

    def _watch(self, child: subprocess.Popen[bytes], limit_s: float) -> Iterator[float]:
        """Each step looks at the clock and the child's memory, and raises to end the wait, or says
        for how long neither can be over its limit."""
        memory, clock = MemoryWatch(child.pid), TimeWatch(child.pid, limit_s)
        while True:
            if self._stopped or self._given_up():
                raise CompilerInterruptedError
            if clock.is_over():
                raise ChildTimedOutError(f"no answer within {limit_s:g} s")
            room = self._memory_bytes - memory.resident_bytes()
            if room < 0:
                raise self._died(
                    f"out of memory: killed at the limit of {self._memory_bytes / 2**30:.1f} GiB"
                )
            pause_s = min(_MOST_POLL_S, room / _FASTEST, clock.left_s())
            yield max(_LEAST_POLL_S, pause_s)

    def _parsed(self, child: subprocess.Popen[bytes], line: bytes | None) -> dict[str, Any]:
        if line is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_REAP_S)
            raise self._died(_cause_of_death(self._what, child.returncode))
        with contextlib.suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                return answer
        raise self._died(f"the {self._what} answered nonsense: {line[:80]!r}")

    def _died(self, reason: str) -> ChildDiedError:
        text = b""
        with contextlib.suppress(OSError):
            if self._folder is not None:
                with (self._folder / "log").open("rb") as log:
                    log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
                    text = log.read()
        lines = _NOTES.sub("", text.decode(errors="replace")).splitlines()
        return ChildDiedError(reason, "\n".join(lines[-_LOG_TAIL_LINES:]))


def _cause_of_death(what: str, code: int | None) -> str:
    """A sentence about a return code, negative for a signal."""
    if code is None:
        return f"the {what} closed its pipe and did not end"
    if code >= 0:
        return f"the {what} ended with exit code {code} in the middle of its work"
    try:
        name = f"{signal.Signals(-code).name} ({signal.strsignal(-code)})"
    except ValueError:
        name = f"signal {-code}"
    hint = ", sent from outside: most often the system has run out of memory"
    return f"the {what} died of {name}{hint if -code == signal.SIGKILL else ''}"


def _temp() -> str | None:
    """None for the usual place. libtpu's switches are parted by spaces, so its folder has none."""
    return "/tmp" if any(c.isspace() for c in tempfile.gettempdir()) else None  # noqa: S108 (without a space)


@contextlib.contextmanager
def _no_folder() -> Iterator[None]:
    """The one place that speaks of a temporary folder that cannot be used."""
    try:
        yield
    except OSError as error:
        raise CompilerUnavailableError(
            f"no temporary folder can be made for the compiler ({error.strerror}): make room, or "
            "set TMPDIR to a folder that can be written"
        ) from error
