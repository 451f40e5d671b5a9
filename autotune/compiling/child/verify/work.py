"""How much interpret mode has to do for a problem, by its shapes, grid and known integers: what is
proved depends on this, never on how busy the machine is."""

import time
from collections.abc import Callable, Iterable
from math import inf, prod
from threading import Lock

from autotune.compiling.child.trace.pallas_call import Call

# Work is counted in accesses to simulated memory, which leave JAX for Python; and this is what the
# interpreter does in the time of one (two cores, jax 0.10.2, `benchmarks verification`).
_PER_SECOND = 5000.0
_FLOPS = 5e6
_VECTOR_OPS = 1e4
_RUN = 1500.0  # to trace and to compile it

_TELL_S = 1.0


class OverBudgetError(Exception):
    """It is more work than was to be spent on it."""


def work_of(calls: Iterable[Call]) -> float:
    """Of one run of a function, in accesses to simulated memory; without end where it makes no
    call that can be looked into, or the length of a loop is not known."""
    return sum(map(_of_call, calls)) or inf


def _of_call(call: Call) -> float:
    body, blocks = call.body, prod(call.grid) * len(call.mapping.block_mappings)
    once = blocks + body.accesses + body.mxu_flops / _FLOPS + body.vector_ops / _VECTOR_OPS
    return inf if call.runs is None or not body.is_bounded else call.runs * once


class WorkMeter:
    """Counts what the runs of a verification do, and ends them at as many accesses as there are in
    ``budget_s``: that depends on no clock. ``tell`` hears about every second for how many seconds
    it goes on, where the work of all runs is known."""

    def __init__(self, budget_s: float, tell: Callable[[float], None]) -> None:
        self.budget_s, self._tell, self._lock = budget_s, tell, Lock()
        self._total = self._accesses = self._before = self._ended = 0.0
        self._started = self._reported = time.monotonic()

    @property
    def is_over(self) -> bool:
        return self._accesses > self.budget_s * _PER_SECOND

    def plan(self, least: float, works: Iterable[float]) -> None:
        """``works``: of all runs. Raises ``OverBudgetError`` for the ``least`` of them."""
        if self.budget_s * _PER_SECOND < least < inf:
            raise OverBudgetError
        self._total = sum(work + _RUN for work in works)

    def count(self) -> None:
        """An access. Raises ``OverBudgetError``."""
        with self._lock:
            self._accesses += 1
            if self.is_over:
                raise OverBudgetError
            now = time.monotonic()
            if now - self._reported >= _TELL_S and self._total < inf:
                done = self._ended + _RUN + self._accesses - self._before
                self._reported = now
                self._tell((now - self._started) * max(0.0, self._total / done - 1.0))

    def end_run(self, work: float) -> None:
        self._ended, self._before = self._ended + work + _RUN, self._accesses
