"""What is found for one chip and holds for all: of kernels that do not ask which one it is."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock

from autotune.compiling.protocol import Traces
from autotune.domain.config import Config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.outcome import Failure
from autotune.domain.problem import Problem
from autotune.domain.trace import Trace
from autotune.domain.verdict import Verdict

_Traced = dict[tuple[Config, bool], list[Trace] | Failure]
"""By config and whether in all orders."""


class SharedAcrossChips:
    """Traces of the problem that was traced last, and the verdicts of all. A kernel that has once
    asked for the chip while it was traced, or was not traced yet, shares nothing. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sources: dict[KernelRef, str] = {}
        self._asks: dict[KernelRef, bool] = {}
        self._traced: tuple[tuple[KernelRef, Problem] | None, _Traced] = (None, {})
        self._verdicts: dict[tuple[KernelRef, Problem, Config], Future[Verdict]] = {}

    def described(self, ref: KernelRef, fingerprint: str) -> None:
        """Of another source nothing is known."""
        with self._lock:
            if self._sources.setdefault(ref, fingerprint) != fingerprint:
                self._sources[ref] = fingerprint
                self._asks.pop(ref, None)
                self._traced = None, {}
                self._verdicts = {k: v for k, v in self._verdicts.items() if k[0] != ref}

    def traces(self, ref: KernelRef, problem: Problem) -> _Traced:
        """What is known of a problem; that of others is forgotten."""
        with self._lock:
            if self._traced[0] != (ref, problem) or self._asks.get(ref):
                self._traced = (ref, problem), {}
            return dict(self._traced[1])

    def take(
        self, ref: KernelRef, problem: Problem, which: tuple[Config, bool], found: Traces | Failure
    ) -> None:
        """A failure says nothing: it may be the chip's, or the machine's."""
        if not isinstance(found, Traces):
            return
        with self._lock:
            self._asks[ref] = found.asks_chip or self._asks.get(ref, False)
            if self._traced[0] == (ref, problem):
                self._traced[1][which] = found.traces

    def verdict(
        self, ref: KernelRef, problem: Problem, config: Config, verify: Callable[[], Verdict]
    ) -> Verdict:
        """What the gate says, which is asked once; interpret mode knows no VMEM limit. Who asks
        while it runs waits for it."""
        with self._lock:
            if self._asks.get(ref, True):
                shared = own = None
            else:
                key, own = (ref, problem, config.replace(vmem_limit_bytes=None)), Future[Verdict]()
                shared = self._verdicts.setdefault(key, own)
        if shared is None or own is None:
            return verify()
        if shared is own:
            try:
                own.set_result(verify())
            except BaseException as error:
                own.set_exception(error)
            if own.exception() or own.result().ok is None:  # it may be the machine's fault
                self._verdicts.pop(key, None)
        return shared.result()
