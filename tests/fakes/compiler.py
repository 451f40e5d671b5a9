"""A compiler pool and a store without processes or files, for the loop and the space."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from autotune.domain.compilers import (
    Attempt,
    CompileBaseline,
    CompileConfig,
    Compiled,
    CompilerQuestion,
    Compilers,
    DescribeChip,
    DescribeKernel,
    DescribeToolchain,
    ListChoices,
    NamedProblem,
    ReadProblem,
    TraceConfig,
    Traces,
    Underway,
    VerifyConfig,
    WriteExecutable,
    XlaCost,
)
from autotune.domain.evidence import Verdict
from autotune.domain.job import Progress
from autotune.domain.key import Chip, ChipInfo, Choices, KernelSpec, Key, Toolchain
from autotune.domain.outcome import Failure, Outcome
from autotune.domain.problem import Config
from autotune.domain.record import Trial
from autotune.domain.trace import Trace
from autotune.publishing.task import TuningObserver

T = TypeVar("T")

TOOLCHAIN = Toolchain(jax="1", jaxlib="1", libtpu="1")


class FakeCompilers:
    """Implements ``domain.compilers.Compilers`` without a process: each answer is there at
    once, by functions of the config where it depends on one. Remembers what it was asked."""

    size = 2
    toolchain = TOOLCHAIN

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
        self.budgets: list[float] = []
        self.traced_chips: list[Chip | None] = []

    def ask(self, question: CompilerQuestion[T]) -> T:
        return self.submit(question).result()

    def submit(self, question: CompilerQuestion[T]) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(self.answer(question))
        return future

    def underway(self, _: CompilerQuestion[Any]) -> Underway | None:
        return None

    def ask_all(self, questions: Sequence[CompilerQuestion[T]]) -> Iterator[T]:
        return map(self.ask, questions)

    def answer(self, question: Any) -> Any:
        match question:
            case DescribeToolchain():
                return self.toolchain
            case DescribeChip(chip=chip):
                return replace(_known(self._chip), chip=chip)
            case DescribeKernel():
                return _known(self._spec)
            case ReadProblem(words=words):
                return NamedProblem("", words.of(_known(self._spec).problems))
            case ListChoices():
                return _known(self._choices)
            case TraceConfig(config=config, chip=chip):
                self.traced_chips.append(chip)
                traces = _known(self._traced)(config)
                return Traces(traces) if isinstance(traces, list) else traces
            case CompileConfig(config=config):
                self.compiled_configs.append(config)
                return Attempt(answer=_known(self._compiled)(config), seconds=0.1)
            case VerifyConfig(config=config, budget_s=budget_s):
                self.verified_configs.append(config)
                self.budgets.append(budget_s)
                return _known(self._verified)(config)
            case CompileBaseline():
                return XlaCost(flops=2e8, schedule=())
            case WriteExecutable(path=path):
                Path(path).write_bytes(b"an executable")
        return None


def _known(given: T | None) -> T:
    assert given is not None
    return given


if TYPE_CHECKING:
    _IMPLEMENTED: Compilers = FakeCompilers()


class MemorySearches:
    """What was reported last, of any key."""

    last = Progress()

    def report(self, key: Key, space: str, progress: Progress, *, over: bool) -> None:
        self.last = progress

    def progress(self, key: Key) -> Progress:
        return self.last


class MemoryStore:
    """Trials in a list; refuses the same number or config twice."""

    def __init__(self) -> None:
        self.kept: list[Trial] = []
        self.published: list[Any] = []
        self.of_others: list[tuple[Key, Trial]] = []
        self.searches = MemorySearches()

    def record(self, key: Key) -> Any:
        return next((record for record in self.published if record.key == key), None)

    def save_record(self, record: Any) -> None:
        self.published.append(record)

    def known_configs(self, kernel: str) -> Sequence[Any]:
        return ()

    def calibration(self, chip: Chip, toolchain: Toolchain) -> Sequence[Any]:
        return ()

    def records(self, kernel: str | None = None, chip: Chip | None = None) -> Sequence[Any]:
        return self.published

    def trial_ids(self, key: Key) -> dict[int, int]:
        return {trial.number: trial.number for trial in self.kept}

    def kernels(self) -> Sequence[Any]:
        return ()

    def save_kernel(self, spec: Any) -> None:
        """It is known."""

    def save_trials(self, key: Key, trials: Sequence[Trial]) -> int:
        return len(list(takewhile(self._save, trials)))

    def _save(self, trial: Trial) -> bool:
        if any(t.number == trial.number or t.config == trial.config for t in self.kept):
            return False
        self.kept.append(trial)
        return True

    def replace_outcome(self, key: Key, config: Config, outcome: Outcome) -> None:
        self.kept = [replace(t, outcome=outcome) if t.config == config else t for t in self.kept]

    def place_default(self, key: Key, default: Config) -> None:
        """It is in its place."""

    def trials(self, key: Key) -> Sequence[Trial]:
        return sorted(self.kept, key=lambda t: t.number)

    def timed_trials(self, key: Key, most: int) -> Sequence[tuple[Key, Trial]]:
        return self.of_others[:most]


class Quiet(TuningObserver):
    """Watches nothing, counts trials."""

    def __init__(self) -> None:
        self.done = 0

    def space_ready(self, space: Any, earlier: Any, goal: int) -> None:
        self.goal = goal

    def trial_done(self, trial: Trial) -> None:
        self.done += 1
