"""A compiler pool and a store without processes or files, for the loop and the space."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.domain.chip import Chip, ChipInfo
from autotune.domain.compiled import Attempt, Compiled, XlaCost
from autotune.domain.compilers import Compilers
from autotune.domain.config import Config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import Choices, KernelSpec
from autotune.domain.key import Key
from autotune.domain.outcome import Failure, Outcome
from autotune.domain.problem import Problem
from autotune.domain.toolchain import Toolchain
from autotune.domain.trace import Trace
from autotune.domain.trial import Trial
from autotune.domain.verdict import Verdict

TOOLCHAIN = Toolchain(jax="1", jaxlib="1", libtpu="1")


class FakeCompilers:
    """Implements ``domain.compilers.Compilers`` without a process: each answer is there at
    once, by functions of the config where it depends on one. Remembers what it was asked."""

    size = 2

    def __init__(
        self,
        *,
        spec: KernelSpec | None = None,
        compiled: Callable[[Config], tuple[Trace, Compiled] | Failure] | None = None,
        traced: Callable[[Config], list[Trace] | Failure] | None = None,
        verified: Callable[[Config], Verdict] | None = None,
        choices: Choices | None = None,
        chip: ChipInfo | None = None,
    ) -> None:
        self._choices, self._chip = choices, chip
        self._spec, self._compiled, self._traced, self._verified = spec, compiled, traced, verified
        self.compiled_configs: list[Config] = []
        self.verified_configs: list[Config] = []
        self.traced_chips: list[Chip | None] = []

    def toolchain(self) -> Toolchain:
        return TOOLCHAIN

    def chip_info(self, chip: Chip) -> ChipInfo:
        assert self._chip is not None
        return replace(self._chip, chip=chip)

    def describe(self, ref: KernelRef) -> KernelSpec:
        assert self._spec is not None
        return self._spec

    def problem(self, ref: KernelRef) -> Problem:
        raise NotImplementedError

    def choices(self, ref: KernelRef, problem: Problem, chip: Chip | None = None) -> Choices:
        assert self._choices is not None
        return self._choices

    def check(self, ref: KernelRef, problem: Problem, chip: Chip) -> None:
        """All fits together."""

    def traces(
        self,
        ref: KernelRef,
        problem: Problem,
        configs: Sequence[Config],
        *,
        orders: bool,
        chip: Chip | None = None,
    ) -> Iterator[list[Trace] | Failure]:
        assert self._traced is not None
        self.traced_chips.append(chip)
        return map(self._traced, configs)

    def compile(
        self, ref: KernelRef, problem: Problem, config: Config, chip: Chip
    ) -> Future[Attempt]:
        assert self._compiled is not None
        self.compiled_configs.append(config)
        future: Future[Attempt] = Future()
        future.set_result(Attempt(answer=self._compiled(config), seconds=0.1))
        return future

    def verify(self, ref: KernelRef, problem: Problem, config: Config, chip: Chip) -> Verdict:
        assert self._verified is not None
        self.verified_configs.append(config)
        return self._verified(config)

    def baseline(self, ref: KernelRef, problem: Problem, chip: Chip) -> XlaCost | Failure:
        return XlaCost(flops=2e8, schedule=())

    def executable(
        self,
        ref: KernelRef,
        problem: Problem,
        config: Config | None,
        name: str,
        chip: Chip | None,
        path: Path,
    ) -> Failure | None:
        path.write_bytes(b"an executable")
        return None


if TYPE_CHECKING:
    _IMPLEMENTED: Compilers = FakeCompilers()


class MemoryStore:
    """Trials in a list; refuses the same number or config twice."""

    def __init__(self) -> None:
        self.kept: list[Trial] = []
        self.kernels: list[Any] = []
        self.refusals: list[Any] = []
        self.published: list[Any] = []
        self.of_others: list[tuple[Key, Trial]] = []

    def records(self, kernel: str | None = None, chip: Chip | None = None) -> Sequence[Any]:
        return self.published

    def save_kernel(self, spec: Any) -> None:
        self.kernels.append(spec)

    def save_refusals(self, key: Key, refusals: Any) -> None:
        self.refusals.append(refusals)

    def save_trials(self, key: Key, trials: Sequence[Trial]) -> int:
        return len(list(takewhile(self._save, trials)))

    def _save(self, trial: Trial) -> bool:
        if any(t.number == trial.number or t.config == trial.config for t in self.kept):
            return False
        self.kept.append(trial)
        return True

    def replace_outcome(self, key: Key, number: int, outcome: Outcome) -> None:
        self.kept = [replace(t, outcome=outcome) if t.number == number else t for t in self.kept]

    def trials(self, key: Key) -> Sequence[Trial]:
        return sorted(self.kept, key=lambda t: t.number)

    def timed_trials(self, key: Key, most: int) -> Sequence[tuple[Key, Trial]]:
        return self.of_others[:most]


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
