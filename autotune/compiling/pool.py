"""Compiler children of this machine, working side by side."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import LifoQueue
from threading import Lock
from typing import Any, Self, TypeVar

from autotune.compiling.client import Compiler
from autotune.compiling.process import DEFAULT_MEMORY_BYTES, WORKER, CompilerProcess
from autotune.compiling.shared import SharedAcrossChips
from autotune.domain.compilers import CompilerQuestion, DescribeToolchain, TraceConfig, VerifyConfig
from autotune.domain.errors import CompilerUnavailableError
from autotune.domain.verdict import Verdict

T = TypeVar("T")

MAX_COMPILERS = 2


class PooledCompilers(ABC):
    """``domain.compilers.Compilers`` of whatever answers ``size`` questions side by side. Leaves
    none of them behind its ``with``."""

    _everyone: Sequence[Compiler] = ()

    def __init__(self, size: int, options: str = "") -> None:
        """``options``: of the TPU compiler, for questions that name none."""
        self.size, self._options = size, options
        self._shared = SharedAcrossChips()
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="compiler")

    def ask(self, question: CompilerQuestion[T]) -> T:
        return self.submit(question).result()

    def submit(self, question: CompilerQuestion[T]) -> Future[T]:
        if getattr(question, "options", "") is None:
            question = replace(question, options=self._options)  # type: ignore[call-arg]
        known = self._shared.traces(question) if isinstance(question, TraceConfig) else None
        if known is None:
            return self._threads.submit(self._shared.answer, question, self._answer)
        answered: Future[Any] = Future()
        answered.set_result(known)
        return answered

    def ask_all(self, questions: Sequence[CompilerQuestion[T]]) -> Iterator[T]:
        pending = [self.submit(question) for question in questions]
        try:
            for future in pending:
                yield future.result()
        finally:
            for future in pending:
                future.cancel()

    def left_s(self, question: CompilerQuestion[Any]) -> float | None:
        asked = (compiler for compiler in self._everyone if compiler.asked is question)
        return next((compiler.process.left_s for compiler in asked), None)

    @abstractmethod
    def _answer(self, question: CompilerQuestion[T]) -> T:
        """By a compiler, as soon as one is free."""

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
    """``size`` children, each used by one question at a time."""

    def __init__(
        self,
        size: int = MAX_COMPILERS,
        *,
        python: str = sys.executable,
        limit_s: float = 120.0,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        worker: Path = WORKER,
        verify_with: Sequence[str] = (),
        options: str = "",
    ) -> None:
        """``verify_with``: interpreters that are asked in turn to verify what the JAX of ``python``
        cannot run in interpret mode."""
        super().__init__(size, options)
        self._compilers, self._others = (
            [Compiler(CompilerProcess(p, memory_bytes, worker), limit_s=limit_s) for p in pythons]
            for pythons in ([python] * size, verify_with)
        )
        self._everyone = (*self._compilers, *self._others)
        self._others_lock = Lock()
        # The one that answered last is asked again: it has just traced what it is to compile.
        self._free: LifoQueue[Compiler] = LifoQueue()
        for compiler in self._compilers:
            self._free.put(compiler)

    def _answer(self, question: CompilerQuestion[T]) -> T:
        compiler = self._free.get()
        try:
            answer: Any = compiler.ask(question)
        finally:
            self._free.put(compiler)
        if isinstance(question, VerifyConfig):
            return self._final_verdict(question, answer)  # type: ignore[return-value]
        return answer  # type: ignore[no-any-return]

    def _final_verdict(self, question: VerifyConfig, verdict: Verdict) -> Verdict:
        if verdict.is_final:
            return verdict
        with self._others_lock:
            for other in self._others:
                if not verdict.is_final:
                    another = _verified(other, question)
                    verdict = verdict if another.ok is None else another
        return verdict

    def _stop(self) -> None:
        for compiler in self._everyone:
            compiler.process.interrupt()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for compiler in self._everyone:
            compiler.close()


def _verified(compiler: Compiler, question: VerifyConfig) -> Verdict:
    """The verdict of another JAX, under its name; none where that interpreter does not work."""
    try:
        return compiler.ask(question).with_jax(compiler.ask(DescribeToolchain()).jax)
    except CompilerUnavailableError as error:
        return Verdict(ok=None, reason=str(error))
