"""The measuring process from the parent's side: opened, loaded, asked for times; started again
after an abort, with what was loaded before, but without what ended it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from autotune.compiling import libtpu, protocol
from autotune.compiling.client import answer_of
from autotune.compiling.limits import START_LIMIT_S
from autotune.compiling.process import CompilerProcess
from autotune.compiling.protocol import Device, Loaded, Raised
from autotune.domain.compilers import Attempted, Required
from autotune.domain.evidence import NotMeasured
from autotune.domain.key import Chip, KernelRef
from autotune.domain.outcome import Crashed, TimedOut
from autotune.domain.problem import Config, Problem
from autotune.measuring.race import DeviceLostError

T = TypeVar("T")

WORKER = Path(__file__).parents[1] / "compiling" / "child" / "measure" / "worker.py"
_MEMORY_BYTES = 32 << 30


class CannotMeasureError(Exception):
    """Nothing can be measured here; the message is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringTask:
    """What is run. ``chip`` is None where the device is no TPU. ``options``: of its compiler."""

    ref: KernelRef
    problem: Problem
    chip: Chip | None
    seed: int = 0
    options: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A candidate (None: plain XLA) and the file of its executable, where it was compiled."""

    name: str
    config: Config | None
    path: Path | None


def measuring_process(
    platform: str, python: str = sys.executable, options: str = ""
) -> CompilerProcess:
    """A child that opens the accelerator of a JAX platform (tpu, cuda, cpu) when it is asked to."""
    return CompilerProcess(
        python,
        _MEMORY_BYTES,
        worker=WORKER,
        what="measuring process",
        environment=partial(libtpu.measuring_environment, platform=platform, options=options),
    )


@dataclass(slots=True)
class Child:
    """``limit_s``: for each candidate: to load and warm up, and for each run; waits for a processor
    are not counted."""

    process: CompilerProcess
    work: MeasuringTask
    number: int = 0
    limit_s: float = 60.0
    loaded: dict[str, Program] = field(default_factory=dict)

    def open(self) -> Device:
        """Start, open the device, make the inputs. Raises ``CannotMeasureError``."""
        device = self._demand(protocol.OpenDevice(number=self.number))
        self._demand(protocol.MakeInputs(**self._subject, seed=self.work.seed))
        return device

    def load(self, program: Program) -> NotMeasured | Loaded:
        """Make a candidate ready. Raises ``DeviceLostError`` where the device does not open
        again."""
        question = protocol.LoadProgram(
            **self._subject,
            name=program.name,
            config=program.config,
            path=None if program.path is None else str(program.path),
        )
        answer = self._tried(question, self.limit_s)
        if isinstance(answer, Loaded):
            self.loaded[program.name] = program
        return answer

    def sample(self, order: Sequence[str]) -> list[float | NotMeasured]:
        """Microseconds of each run. What ends the process is found by running one at a time.

        Raises ``DeviceLostError``.
        """
        question = protocol.TakeSamples(order=tuple(order))
        answer = self._tried(question, self.limit_s * len(order))
        if not isinstance(answer, NotMeasured):
            return [
                NotMeasured(refusal) if ps is None else ps / 1e6 for ps, refusal in answer.samples
            ]
        if len(order) == 1:
            self.loaded.pop(order[0], None)
            return [answer]
        bad: dict[str, NotMeasured] = {}
        times: list[float | NotMeasured] = []
        for name in order:
            sample = bad.get(name) or self.sample([name])[0]
            if isinstance(sample, NotMeasured):
                bad[name] = sample
            times.append(sample)
        return times

    def close(self) -> None:
        self.process.close()

    @property
    def _subject(self) -> dict[str, Any]:
        return {"ref": self.work.ref, "problem": self.work.problem, "chip": self.work.chip}

    def _tried(self, question: Attempted[T], limit_s: float) -> T | NotMeasured:
        """The answer, or why the candidate has none; the process is there again afterwards."""
        if not self.process.running:
            self._again()
        answer = answer_of(self.process, question, limit_s)
        if isinstance(answer, TimedOut):
            return NotMeasured(f"it was killed: {answer.reason}")
        if isinstance(answer, Crashed):
            return NotMeasured(f"it ended the measuring process: {_with_tail(answer)}")
        return NotMeasured(_raised(answer)) if isinstance(answer, Raised) else answer

    def _again(self) -> None:
        """Open the device once more and load what had been loaded."""
        try:
            self.open()
        except CannotMeasureError as error:
            raise DeviceLostError(f"the device was lost: {error}") from error
        for program in list(self.loaded.values()):
            loaded = self.load(program)
            if isinstance(loaded, NotMeasured):
                raise DeviceLostError(f"{program.name} cannot be loaded again: {loaded.reason}")

    def _demand(self, question: Required[T]) -> T:
        answer = answer_of(self.process, question, START_LIMIT_S)
        if isinstance(answer, TimedOut):
            raise CannotMeasureError(f"the accelerator does not open: {answer.reason}")
        if isinstance(answer, Crashed):
            raise CannotMeasureError(_with_tail(answer))
        if isinstance(answer, Raised):
            self.process.stop()
            named = "" if answer.stage == protocol.OPEN else f"{answer.type}: "
            raise CannotMeasureError(f"{named}{answer.message}".splitlines()[0])
        return answer  # type: ignore[no-any-return]


def _raised(raised: Raised) -> str:
    """JAX puts a whole traceback into a message: what happened, and its cause."""
    text = f"{raised.stage} raised {raised.type}: {raised.message}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:240] if len(lines) == 1 else f"{lines[0][:160]} … {lines[-1][:160]}"


def _with_tail(crashed: Crashed) -> str:
    tail = crashed.log_tail.strip().splitlines()[-1:]
    return f"{crashed.reason}: {tail[0][:200]}" if tail else crashed.reason
