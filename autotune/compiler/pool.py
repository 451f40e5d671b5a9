"""A few compiler children working side by side."""

import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TypeVar

from autotune.compiler.client import Compiler
from autotune.compiler.process import DEFAULT_MEMORY_BYTES, WORKER, CompilerProcess

T = TypeVar("T")

MAX_COMPILERS = 2


class CompilerPool:
    """``size`` compilers, each used by one job at a time. Leaves no child behind its ``with``."""

    def __init__(
        self,
        size: int = MAX_COMPILERS,
        *,
        python: str = sys.executable,
        limit_s: float = 120.0,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        worker: Path = WORKER,
    ) -> None:
        self.size = size
        self._compilers = [
            Compiler(CompilerProcess(python, memory_bytes, worker), limit_s=limit_s)
            for _ in range(size)
        ]
        self._free: SimpleQueue[Compiler] = SimpleQueue()
        for compiler in self._compilers:
            self._free.put(compiler)
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="compiler")

    def submit(self, job: Callable[[Compiler], T]) -> Future[T]:
        """Run ``job`` with a compiler of its own as soon as one is free."""

        def run() -> T:
            compiler = self._free.get()
            try:
                return job(compiler)
            finally:
                self._free.put(compiler)

        return self._threads.submit(run)

    def run(self, job: Callable[[Compiler], T]) -> T:
        """``submit`` and wait."""
        return self.submit(job).result()

    def __enter__(self) -> "CompilerPool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop running jobs, kill every child. Takes about a second, so another Ctrl-C meanwhile
        is not heard: it would leave children behind."""
        while True:
            try:
                return self._stop()
            except KeyboardInterrupt:
                continue

    def _stop(self) -> None:
        for compiler in self._compilers:
            compiler.process.interrupt()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for compiler in self._compilers:
            compiler.close()
