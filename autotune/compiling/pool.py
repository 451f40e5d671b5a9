"""Compiler children of this machine, working side by side.

What is found for one chip and holds for all is shared: of kernels that do not ask which one it is.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import LifoQueue
from threading import Lock
from typing import Any, Self, TypeVar

from autotune.compiling.client import Compiler
from autotune.compiling.limits import CANDIDATE_LIMIT_S, DEFAULT_MEMORY_BYTES
from autotune.compiling.process import WORKER, CompilerProcess
from autotune.domain import compilers
from autotune.domain.errors import CompilerUnavailableError
from autotune.domain.evidence import Verdict
from autotune.domain.key import KernelRef
from autotune.domain.problem import Config, Problem

Ask = Callable[[compilers.CompilerQuestion[Any]], Any]


class SharedAcrossChips:
    """Traces of the problem that was traced last, and the verdicts of all. A kernel that has once
    asked for the chip while it was traced, or was not traced yet, shares nothing. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._fingerprints: dict[KernelRef, str] = {}
        self._asks_chip: dict[KernelRef, bool] = {}
        self._traced: tuple[KernelRef, Problem] | None = None
        self._traces: dict[tuple[Config, bool], compilers.Traces] = {}  # in which orders, too
        self._verdicts: dict[tuple[KernelRef, Problem, Config], Future[Verdict]] = {}

    def answer(self, question: compilers.CompilerQuestion[Any], ask: Ask) -> Any:
        """What is known already, else what is asked for and known from now on."""
        if isinstance(question, compilers.VerifyConfig):
            return self._verdict(question, ask)
        if isinstance(question, compilers.TraceConfig):
            return self.traces(question) or self._learn_traces(question, ask(question))
        answer = ask(question)
        if isinstance(question, compilers.DescribeKernel):
            self._learn_source(question.ref, answer.fingerprint)
        return answer

    def traces(self, question: compilers.TraceConfig) -> compilers.Traces | None:
        """None where they are not known; those of other problems are forgotten."""
        with self._lock:
            if self._traced != (question.ref, question.problem):
                self._traced, self._traces = (question.ref, question.problem), {}
            return self._traces.get((question.config, question.orders))

    def _learn_traces(self, question: compilers.TraceConfig, answer: Any) -> Any:
        """A failure says nothing: it may be the chip's, or the machine's."""
        if isinstance(answer, compilers.Traces):
            with self._lock:
                asks = answer.asks_chip or self._asks_chip.get(question.ref, False)
                self._asks_chip[question.ref] = asks
                if asks:
                    self._traces = {}
                elif self._traced == (question.ref, question.problem):
                    self._traces[question.config, question.orders] = answer
        return answer

    def _learn_source(self, ref: KernelRef, fingerprint: str) -> None:
        """Of another source nothing is known."""
        with self._lock:
            if self._fingerprints.setdefault(ref, fingerprint) != fingerprint:
                self._fingerprints[ref] = fingerprint
                self._asks_chip.pop(ref, None)
                self._traced, self._traces = None, {}
                self._verdicts = {k: v for k, v in self._verdicts.items() if k[0] != ref}

    def _verdict(self, question: compilers.VerifyConfig, ask: Ask) -> Verdict:
        """Asked for once: interpret mode knows no VMEM limit. Who asks while it runs waits for
        it."""
        config = question.config.replace(vmem_limit_bytes=None)
        key, new = (question.ref, question.problem, config), Future[Verdict]()
        with self._lock:
            is_shared = not self._asks_chip.get(question.ref, True)
            shared = self._verdicts.setdefault(key, new) if is_shared else new
        if shared is not new:
            return shared.result()
        try:
            new.set_result(ask(question))
        except BaseException as error:
            new.set_exception(error)
        if new.exception() or new.result().ok is None:  # it may be the machine's fault
            self._verdicts.pop(key, None)
        return new.result()


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

    def ask(self, question: compilers.CompilerQuestion[T]) -> T:
        return self.submit(question).result()

    def submit(self, question: compilers.CompilerQuestion[T]) -> Future[T]:
        question = self._complete(question)
        known = (
            self._shared.traces(question) if isinstance(question, compilers.TraceConfig) else None
        )
        if known is None:
            return self._threads.submit(self._shared.answer, question, self._answer)
        answered: Future[Any] = Future()
        answered.set_result(known)
        return answered

    def ask_all(self, questions: Sequence[compilers.CompilerQuestion[T]]) -> Iterator[T]:
        pending = [self.submit(question) for question in questions]
        try:
            for future in pending:
                yield future.result()
        finally:
            for future in pending:
                future.cancel()

    def underway(self, question: compilers.CompilerQuestion[Any]) -> compilers.Underway | None:
        asked = (c for c in self._everyone if c.asked == self._complete(question))
        return next((compiler.process.underway for compiler in asked), None)

    def _complete(self, question: compilers.CompilerQuestion[T]) -> compilers.CompilerQuestion[T]:
        if getattr(question, "options", "") is None:
            return replace(question, options=self._options)  # type: ignore[call-arg]
        return question

    @abstractmethod
    def _answer(self, question: compilers.CompilerQuestion[T]) -> T:
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
        limit_s: float = CANDIDATE_LIMIT_S,
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

    def _answer(self, question: compilers.CompilerQuestion[T]) -> T:
        compiler = self._free.get()
        try:
            answer: Any = compiler.ask(question)
        finally:
            self._free.put(compiler)
        if isinstance(question, compilers.VerifyConfig):
            return self._final_verdict(question, answer)  # type: ignore[return-value]
        return answer  # type: ignore[no-any-return]

    def _final_verdict(self, question: compilers.VerifyConfig, verdict: Verdict) -> Verdict:
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


def _verified(compiler: Compiler, question: compilers.VerifyConfig) -> Verdict:
    """The verdict of another JAX, under its name; none where that interpreter does not work."""
    try:
        return compiler.ask(question).with_jax(compiler.ask(compilers.DescribeToolchain()).jax)
    except CompilerUnavailableError as error:
        return Verdict(ok=None, reason=str(error))
