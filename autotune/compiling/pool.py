"""Compiler children of this machine, working side by side."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import LifoQueue
from threading import Lock
from typing import Concatenate, ParamSpec, Self, TypeVar

from autotune.compiling.client import Compiler
from autotune.compiling.process import DEFAULT_MEMORY_BYTES, WORKER, CompilerProcess
from autotune.compiling.protocol import Collected, Drawn, Traces
from autotune.compiling.shared import SharedAcrossChips
from autotune.domain.chip import Chip, ChipInfo
from autotune.domain.compiled import Attempt, XlaCost
from autotune.domain.config import Config
from autotune.domain.errors import CompilerUnavailableError
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import Choices, KernelSpec
from autotune.domain.outcome import Failure
from autotune.domain.problem import Problem
from autotune.domain.toolchain import Toolchain
from autotune.domain.trace import Trace
from autotune.domain.verdict import Verdict

P = ParamSpec("P")
T = TypeVar("T")

MAX_COMPILERS = 2


class PooledCompilers(ABC):
    """``domain.compilers.Compilers`` of whatever answers ``threads`` questions side by side. Leaves
    none of them behind its ``with``."""

    def __init__(self, threads: int) -> None:
        self._shared = SharedAcrossChips()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="compiler")

    @property
    @abstractmethod
    def size(self) -> int: ...

    def toolchain(self) -> Toolchain:
        return self._ask(Compiler.toolchain)

    def chip_info(self, chip: Chip) -> ChipInfo:
        return self._ask(Compiler.chip_info, chip)

    def describe(self, ref: KernelRef) -> KernelSpec:
        spec = self._ask(Compiler.describe, ref)
        self._shared.described(ref, spec.fingerprint)
        return spec

    def problem(self, ref: KernelRef) -> Problem:
        return self._ask(Compiler.problem, ref)

    def collect(
        self, ref: KernelRef, chip: Chip | None, catalogue: dict[str, KernelRef]
    ) -> Collected:
        return self._ask(Compiler.collect, ref, chip, catalogue)

    def choices(self, ref: KernelRef, problem: Problem, chip: Chip | None = None) -> Choices:
        return self._ask(Compiler.choices, ref, problem, chip)

    def check(self, ref: KernelRef, problem: Problem, chip: Chip) -> None:
        return self._ask(Compiler.check, ref, problem, chip)

    def traces(
        self,
        ref: KernelRef,
        problem: Problem,
        configs: Sequence[Config],
        *,
        orders: bool,
        chip: Chip | None = None,
    ) -> Iterator[list[Trace] | Failure]:
        known = self._shared.traces(ref, problem)
        pending = [
            None
            if (config, orders) in known
            else self.submit(Compiler.trace, ref, problem, config, orders=orders, chip=chip)
            for config in configs
        ]
        try:
            for config, future in zip(configs, pending, strict=True):
                if future is None:
                    yield known[config, orders]
                    continue
                found = future.result()
                self._shared.take(ref, problem, (config, orders), found)
                yield found.traces if isinstance(found, Traces) else found
        finally:
            for future in filter(None, pending):
                future.cancel()

    def compile(
        self, ref: KernelRef, problem: Problem, config: Config, chip: Chip
    ) -> Future[Attempt]:
        return self.submit(Compiler.compile, ref, problem, config, chip)

    def draw(
        self, ref: KernelRef, problem: Problem, config: Config, chip: Chip, steps: int
    ) -> Drawn | Failure:
        """Compile a config again, and draw its first and last grid steps."""
        return self._ask(Compiler.draw, ref, problem, config, chip, steps)

    def baseline(self, ref: KernelRef, problem: Problem, chip: Chip) -> XlaCost | Failure:
        return self._ask(Compiler.baseline, ref, problem, chip)

    def verify(self, ref: KernelRef, problem: Problem, config: Config, chip: Chip) -> Verdict:
        return self._shared.verdict(
            ref, problem, config, lambda: self._verdict(ref, problem, config, chip)
        )

    def _verdict(self, ref: KernelRef, problem: Problem, config: Config, chip: Chip) -> Verdict:
        return self._ask(Compiler.verify, ref, problem, config, chip)

    def executable(
        self,
        ref: KernelRef,
        problem: Problem,
        config: Config | None,
        name: str,
        chip: Chip | None,
        path: Path,
    ) -> Failure | None:
        return self._ask(Compiler.executable, ref, problem, config, name, chip, path)

    @abstractmethod
    def submit(
        self, job: Callable[Concatenate[Compiler, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Run ``job`` with a compiler of its own as soon as one is free."""

    def _ask(
        self, job: Callable[Concatenate[Compiler, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return self.submit(job, *args, **kwargs).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop running jobs, kill every child. Takes about a second, so another Ctrl-C meanwhile
        is not heard: it would leave children behind."""
        while True:
            try:
                return self._stop()
            except KeyboardInterrupt:
                continue

    @abstractmethod
    def _stop(self) -> None: ...


class CompilerPool(PooledCompilers):
    """``domain.compilers.Compilers`` with ``size`` children, each used by one question at a time.

    Leaves no child behind its ``with``.
    """

    def __init__(
        self,
        size: int = MAX_COMPILERS,
        *,
        python: str = sys.executable,
        limit_s: float = 120.0,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        worker: Path = WORKER,
        verify_with: Sequence[str] = (),
    ) -> None:
        """``verify_with``: interpreters that are asked in turn to verify what the JAX of ``python``
        cannot run in interpret mode."""
        super().__init__(size)
        self._compilers = [
            Compiler(CompilerProcess(python, memory_bytes, worker), limit_s=limit_s)
            for _ in range(size)
        ]
        self._others = [
            Compiler(CompilerProcess(other, memory_bytes, worker), limit_s=limit_s)
            for other in verify_with
        ]
        self._others_lock = Lock()
        # The one that answered last is asked again: it has just traced what it is to compile.
        self._free: LifoQueue[Compiler] = LifoQueue()
        for compiler in self._compilers:
            self._free.put(compiler)

    @property
    def size(self) -> int:
        return len(self._compilers)

    def _verdict(self, ref: KernelRef, problem: Problem, config: Config, chip: Chip) -> Verdict:
        verdict = self._ask(Compiler.verify, ref, problem, config, chip)
        if verdict.is_final:
            return verdict
        with self._others_lock:
            for other in self._others:
                if not verdict.is_final:
                    found = _verified(other, ref, problem, config, chip)
                    verdict = verdict if found.ok is None else found
        return verdict

    def submit(
        self, job: Callable[Concatenate[Compiler, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        def run() -> T:
            compiler = self._free.get()
            try:
                return job(compiler, *args, **kwargs)
            finally:
                self._free.put(compiler)

        return self._threads.submit(run)

    def _stop(self) -> None:
        everyone = (*self._compilers, *self._others)
        for compiler in everyone:
            compiler.process.interrupt()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for compiler in everyone:
            compiler.close()


def _verified(
    compiler: Compiler, ref: KernelRef, problem: Problem, config: Config, chip: Chip
) -> Verdict:
    """The verdict of another JAX, under its name; none where that interpreter does not work."""
    try:
        verdict = compiler.verify(ref, problem, config, chip)
        return verdict.with_jax(compiler.toolchain().jax)
    except CompilerUnavailableError as error:
        return Verdict(ok=None, reason=str(error))
