"""A compiler pool and a store without processes or files, for the loop and the space."""

from concurrent.futures import Future
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from autotune.domain.compilers import (
    Attempt,
    CompileBaseline,
    CompileConfig,
    DescribeChip,
    DescribeKernel,
    DescribeToolchain,
    ListChoices,
    NamedProblem,
    ReadProblem,
    TraceConfig,
    Traces,
    VerifyConfig,
    WriteExecutable,
    XlaCost,
)
from autotune.domain.job import Progress
from autotune.domain.key import Chip, Key, Toolchain
from autotune.domain.problem import Config
from autotune.domain.record import Trial
from autotune.publishing.task import TuningObserver

T = TypeVar("T")

TOOLCHAIN = Toolchain(jax="1", jaxlib="1", libtpu="1")


class FakeCompilers:
    """Implements ``domain.compilers.Compilers`` without a process: each answer is there at
    once, by functions of the config where it depends on one. Remembers what it was asked."""

    size = 2
    toolchain = TOOLCHAIN

    def __init__(
        self, *, spec=None, compiled=None, traced=None, verified=None, choices=None, chip=None
    ):
        self._choices, self._chip = choices, chip
        self._spec, self._compiled, self._traced, self._verified = spec, compiled, traced, verified
        self.compiled_configs: list[Config] = []
        self.verified_configs: list[Config] = []
        self.budgets: list[float] = []
        self.traced_chips: list[Chip | None] = []

    def ask(self, question):
        return self.submit(question).result()

    def submit(self, question):
        future = Future()
        future.set_result(self.answer(question))
        return future

    def underway(self, _):
        return None

    def ask_all(self, questions):
        return map(self.ask, questions)

    def answer(self, question):
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


def _known(given):
    assert given is not None
    return given


if TYPE_CHECKING:
    _IMPLEMENTED = FakeCompilers()


class MemorySearches:
    """What was reported last, of any key."""

    last = Progress()

    def report(self, key, space, progress, *, over):
        self.last = progress

    def progress(self, key):
        return self.last


class MemoryStore:
    """Trials in a list; refuses the same number or config twice."""

    def __init__(self):
        self.kept: list[Trial] = []
        self.published: list[Any] = []
        self.of_others: list[tuple[Key, Trial]] = []
        self.searches = MemorySearches()

    def record(self, key):
        return next((record for record in self.published if record.key == key), None)

    def save_record(self, record):
        self.published.append(record)

    def known_configs(self, kernel):
        return ()

    def calibration(self, chip, toolchain):
        return ()

    def records(self, kernel=None, chip=None):
        return self.published

    def trial_ids(self, key):
        return {trial.number: trial.number for trial in self.kept}

    def kernels(self):
        return ()

    def save_kernel(self, spec):
        """It is known."""

    def save_trials(self, key, trials):
        return len(list(takewhile(self._save, trials)))

    def _save(self, trial):
        if any(t.number == trial.number or t.config == trial.config for t in self.kept):
            return False
        self.kept.append(trial)
        return True

    def replace_outcome(self, key, config, outcome):
        self.kept = [replace(t, outcome=outcome) if t.config == config else t for t in self.kept]

    def place_default(self, key, default):
        """It is in its place."""

    def trials(self, key):
        return sorted(self.kept, key=lambda t: t.number)

    def timed_trials(self, key, most):
        return self.of_others[:most]


class Quiet(TuningObserver):
    """Watches nothing, counts trials."""

    def __init__(self):
        self.done = 0

    def space_ready(self, space, earlier, goal):
        self.goal = goal

    def trial_done(self, trial):
        self.done += 1
