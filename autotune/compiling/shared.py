"""What is found for one chip and holds for all: of kernels that do not ask which one it is."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Any

from autotune.domain.compilers import (
    CompilerQuestion,
    DescribeKernel,
    TraceConfig,
    Traces,
    VerifyConfig,
)
from autotune.domain.key import KernelRef
from autotune.domain.problem import Config, Problem
from autotune.domain.verdict import Verdict

Ask = Callable[[CompilerQuestion[Any]], Any]


class SharedAcrossChips:
    """Traces of the problem that was traced last, and the verdicts of all. A kernel that has once
    asked for the chip while it was traced, or was not traced yet, shares nothing. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._fingerprints: dict[KernelRef, str] = {}
        self._asks_chip: dict[KernelRef, bool] = {}
        self._traced: tuple[KernelRef, Problem] | None = None
        self._traces: dict[tuple[Config, bool], Traces] = {}  # in which orders, too
        self._verdicts: dict[tuple[KernelRef, Problem, Config], Future[Verdict]] = {}

    def answer(self, question: CompilerQuestion[Any], ask: Ask) -> Any:
        """What is known already, else what is asked for and known from now on."""
        if isinstance(question, VerifyConfig):
            return self._verdict(question, ask)
        if isinstance(question, TraceConfig):
            return self.traces(question) or self._learn_traces(question, ask(question))
        answer = ask(question)
        if isinstance(question, DescribeKernel):
            self._learn_source(question.ref, answer.fingerprint)
        return answer

    def traces(self, question: TraceConfig) -> Traces | None:
        """None where they are not known; those of other problems are forgotten."""
        with self._lock:
            if self._traced != (question.ref, question.problem):
                self._traced, self._traces = (question.ref, question.problem), {}
            return self._traces.get((question.config, question.orders))

    def _learn_traces(self, question: TraceConfig, answer: Any) -> Any:
        """A failure says nothing: it may be the chip's, or the machine's."""
        if isinstance(answer, Traces):
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

    def _verdict(self, question: VerifyConfig, ask: Ask) -> Verdict:
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
