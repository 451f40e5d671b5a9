"""A compiler pool and a store without processes or files, for the loop and the space."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from autotune.domain.compiled import Compiled
from autotune.domain.config import Config
from autotune.domain.key import Key
from autotune.domain.outcome import Outcome
from autotune.domain.trace import Trace
from autotune.domain.trial import Trial


class InlinePool:
    """Runs each job at once, with the one compiler it was given."""

    size = 2

    def __init__(self, compiler: Any) -> None:
        self.compiler = compiler

    def submit(self, job: Callable[[Any], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(job(self.compiler))
        except BaseException as error:
            future.set_exception(error)
        return future

    def run(self, job: Callable[[Any], Any]) -> Any:
        return self.submit(job).result()


class ScriptedCompiler:
    """Answers by functions of the config, and remembers what it was asked."""

    def __init__(
        self,
        compiled: Callable[[Config], tuple[Trace, Compiled] | Outcome] | None = None,
        traced: Callable[[Config], list[Trace] | Outcome] | None = None,
    ) -> None:
        self._compiled, self._traced = compiled, traced
        self.compiled_configs: list[Config] = []
        self.traced_chips: list[Any] = []

    def compile(self, ref: Any, problem: Any, config: Config, chip: Any) -> Any:
        assert self._compiled is not None
        self.compiled_configs.append(config)
        return self._compiled(config)

    def traces(
        self, ref: Any, problem: Any, configs: Sequence[Config], *, orders: bool, chip: Any = None
    ) -> Any:
        assert self._traced is not None
        self.traced_chips.append(chip)
        return [self._traced(config) for config in configs]


class MemoryStore:
    """Trials in a list; refuses the same number or config twice."""

    def __init__(self) -> None:
        self.kept: list[Trial] = []
        self.kernels: list[Any] = []
        self.refusals: list[Any] = []

    def save_kernel(self, spec: Any) -> None:
        self.kernels.append(spec)

    def save_refusals(self, key: Key, refusals: Any) -> None:
        self.refusals.append(refusals)

    def save_trial(self, key: Key, trial: Trial) -> bool:
        if any(t.number == trial.number or t.config == trial.config for t in self.kept):
            return False
        self.kept.append(trial)
        return True

    def replace_outcome(self, key: Key, number: int, outcome: Outcome) -> None:
        self.kept = [replace(t, outcome=outcome) if t.number == number else t for t in self.kept]

    def trials(self, key: Key) -> Sequence[Trial]:
        return sorted(self.kept, key=lambda t: t.number)


class Quiet:
    """Watches nothing, counts trials; may interrupt like Ctrl-C does."""

    def __init__(self, interrupt_after: int | None = None) -> None:
        self.done = 0
        self._interrupt_after = interrupt_after

    def space_ready(self, space: Any, earlier: Any, goal: int) -> None:
        self.goal = goal

    def trial_done(self, trial: Trial) -> None:
        self.done += 1
        if self.done == self._interrupt_after:
            raise KeyboardInterrupt
