"""What runs on a node of the cluster: compilers for the drivers that ask it. It names no Ray."""

import os
import pickle
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from autotune.compiling import process as processes
from autotune.compiling.client import Compiler
from autotune.declaring.discovery import installed_kernels
from autotune.declaring.fingerprint import fingerprint
from autotune.domain.codec import from_data, to_data
from autotune.domain.errors import CompilerUnavailableError
from autotune.domain.key import KernelRef, installed_toolchain
from autotune.domain.version import VERSION

_IDLE_S = 600.0
_LINGER_S = 30.0  # without a driver; who asks for other slots waits longer
_LOOK_S = 15.0
_END_PROCESS = partial(os._exit, 0)
_MOST_CHILDREN = 2  # each holds a JAX with its caches, about a GiB


def node_facts() -> dict[str, Any]:
    """What a driver must know before it uses a node."""
    toolchain = installed_toolchain()
    return {
        "version": VERSION,
        "machine": platform.machine(),
        "toolchain": toolchain and to_data(toolchain),
    }


class _LackingError(Exception):
    """The kernel is not on this node as it is asked for; the message goes on after its name."""


@dataclass(slots=True)
class _Child:
    """The compiler of one driver, which imports that driver's kernels only. ``folder``: for their
    files; ``refs``: where they are here, by where they are there."""

    compiler: Compiler
    folder: tempfile.TemporaryDirectory[str]
    refs: dict[KernelRef, KernelRef] = field(default_factory=dict)
    used_at: float = field(default_factory=time.monotonic)

    def close(self) -> None:
        self.compiler.close()
        self.folder.cleanup()


class CompilerSlot:
    """One question at a time. Drivers that have one question each here take turns, as Ray hands
    out questions in the order in which they come. Ends its process where nobody asks any more.

    ``has_left``: whether a driver is gone, whose question may have waited here; ``given_up``:
    whether it is what is answered just now that nobody waits for any more.
    """

    def __init__(
        self,
        worker: str | None = None,
        has_left: Callable[[str], bool] = lambda _: False,
        given_up: Callable[[], bool] = lambda: False,
        idle_s: float = _IDLE_S,
        end: Callable[[], None] = _END_PROCESS,
    ) -> None:
        self._worker, self._idle_s = Path(worker) if worker else processes.WORKER, idle_s
        self._has_left, self._given_up, self._end = has_left, given_up, end
        self._lock, self._last_driver = Lock(), ""
        self._children: dict[str, _Child] = {}
        self._asked: _Child | None = None
        self._ends_at = time.monotonic() + idle_s
        Thread(target=self._watch, daemon=True).start()

    def ready(self) -> None:
        """Keeps the process there."""
        self._ends_at = time.monotonic() + self._idle_s

    def ask(
        self,
        driver: str,
        request: Mapping[str, Any],
        sources: Mapping[str, Any] | None,
        limit_s: float,
        memory_bytes: int,
    ) -> dict[str, Any]:
        """The child's answer, or in its place what became of the child."""
        if driver != self._last_driver and self._has_left(driver):
            return {"interrupted": True}
        self._last_driver = driver
        child = self._child_of(driver, memory_bytes)
        try:
            return self._answer(child, request, sources, limit_s)
        except processes.ChildTimedOutError as error:
            return {"timed out": str(error)}
        except processes.ChildDiedError as error:
            return {"died": str(error), "log_tail": error.log_tail}
        except processes.CompilerInterruptedError:
            return {"interrupted": True}
        except _LackingError as error:
            return {"lacks": str(error)}
        except (CompilerUnavailableError, OSError) as error:
            return {"unusable": str(error)}
        finally:
            self._answered(child)

    def ask_packed(self, asked: bytes) -> bytes:
        """``ask`` in one piece each way: Ray pickles each argument by itself, in Python."""
        return pickle.dumps(self.ask(*pickle.loads(asked)))  # noqa: S301 - as Ray itself does

    def leave(self, driver: str) -> None:
        """The driver asks nothing more."""
        with self._lock:
            if child := self._children.pop(driver, None):
                child.close()
            if not self._children:
                self._ends_at = min(self._ends_at, time.monotonic() + _LINGER_S)

    def _child_of(self, driver: str, memory_bytes: int) -> _Child:
        with self._lock:
            child = self._children.get(driver)
            if child is None:
                while len(self._children) >= _MOST_CHILDREN:
                    oldest = min(self._children, key=lambda other: self._children[other].used_at)
                    self._children.pop(oldest).close()
                process = processes.CompilerProcess(
                    sys.executable, memory_bytes, self._worker, given_up=self._given_up
                )
                folder = tempfile.TemporaryDirectory(prefix="autotune-sources-")
                child = self._children[driver] = _Child(Compiler(process), folder)
            self._asked = child
            return child

    def _answer(
        self,
        child: _Child,
        request: Mapping[str, Any],
        sources: Mapping[str, Any] | None,
        limit_s: float,
    ) -> dict[str, Any]:
        home = ""
        if sources is not None:
            ref = _ref_here(child, from_data(KernelRef, request["ref"]), sources)
            request = {**request, "ref": to_data(ref)}
            home = ref.root or str(_home(child, sources))
        if not child.compiler.process.running:
            child.compiler.start()
        if request["kind"] != "executable":
            return {"answer": child.compiler.process.ask(request, limit_s), "home": home}
        path = Path(child.folder.name) / "executable"
        path.unlink(missing_ok=True)
        answer = child.compiler.process.ask({**request, "path": str(path)}, limit_s)
        content = path.read_bytes() if path.exists() else b""
        return {"answer": answer, "home": home, "content": content}

    def _answered(self, child: _Child) -> None:
        with self._lock:
            self._asked = None
            child.used_at = time.monotonic()
            self._ends_at = child.used_at + self._idle_s

    def _watch(self) -> None:
        """A driver that was killed says nothing."""
        while True:
            time.sleep(min(_LOOK_S, self._idle_s))
            with self._lock:
                oldest = time.monotonic() - self._idle_s
                for driver, child in list(self._children.items()):
                    if child is not self._asked and child.used_at < oldest:
                        self._children.pop(driver).close()
                if not (self._children or self._asked) and time.monotonic() > self._ends_at:
                    self._end()
                    return


def _ref_here(child: _Child, ref: KernelRef, sources: Mapping[str, Any]) -> KernelRef:
    """Raises ``_LackingError`` where the kernel is not here, or is another one."""
    if ref not in child.refs:
        here = (
            replace(ref, path=str(_written(_home(child, sources), sources)))
            if "files" in sources
            else _installed(ref)
        )
        if fingerprint(here) != sources["fingerprint"]:
            raise _LackingError(f"it has another source of {ref}")
        child.refs[ref] = here
    return child.refs[ref]


def _installed(ref: KernelRef) -> KernelRef:
    for known in installed_kernels().values():
        if (known.module, known.attribute) == (ref.module, ref.attribute):
            return replace(known, call=ref.call)
    raise _LackingError(f"it has no kernel {ref}: install its package there")


def _home(child: _Child, sources: Mapping[str, Any]) -> Path:
    return Path(child.folder.name) / str(sources["digest"])


def _written(home: Path, sources: Mapping[str, Any]) -> Path:
    """The file of the declaration, with those that it imports from beside it."""
    for name, content in sources["files"].items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return home / str(sources["path"])
