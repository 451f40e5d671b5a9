"""Typed questions to a compiler process: outcomes and values in, no dictionaries out."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from autotune.compiling import protocol
from autotune.compiling.messages import classify
from autotune.compiling.process import (
    START_LIMIT_S,
    ChildDiedError,
    ChildTimedOutError,
)
from autotune.compiling.protocol import ChildQuestion, Collected, Drawn, Raised, Traces
from autotune.domain.chip import Chip, ChipInfo
from autotune.domain.codec import to_data
from autotune.domain.compiled import Attempt, XlaCost
from autotune.domain.config import Config
from autotune.domain.errors import (
    CompilerUnavailableError,
    InvalidInputError,
    KernelImportError,
    NoDeclarationError,
)
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import Choices, KernelSpec
from autotune.domain.outcome import CompileFailed, Crashed, Failure, Illegal, TimedOut
from autotune.domain.problem import Problem
from autotune.domain.toolchain import Toolchain
from autotune.domain.verdict import Verdict
from autotune.wording.violation import unverified_text, without_mesh_text

T = TypeVar("T")

_STARTS = 2  # a machine under load may fail once; an interpreter that cannot work fails always
_LACKS = re.compile(r"(?:ModuleNotFoundError|ImportError): (.*)")


class ChildProcess(Protocol):
    """What answers questions: a process here, or a farm. As ``CompilerProcess`` says."""

    python: str

    @property
    def running(self) -> bool: ...

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]: ...

    def stop(self) -> None: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Compiler:
    """One compiler child. ``limit_s``: for one candidate, without what it waits for a processor
    (ten times as much with that).

    Every method raises ``CompilerUnavailableError`` when the child cannot even be started, and
    ``CompilerInterruptedError`` when the process has been interrupted.
    """

    process: ChildProcess
    limit_s: float = 120.0

    def toolchain(self) -> Toolchain:
        """Versions in the child. Raises ``CompilerUnavailableError`` without a TPU compiler."""
        found = self._demand(protocol.Hello()).toolchain
        if found.libtpu == "none":
            raise CompilerUnavailableError(
                "the compiling interpreter has no libtpu: install pallas-autotune[search]"
            )
        return found

    def chip_info(self, chip: Chip) -> ChipInfo:
        """Raises ``CompilerUnavailableError`` when this toolchain does not know the chip."""
        return self._demand(protocol.DescribeChip(chip=chip))

    def describe(self, ref: KernelRef) -> KernelSpec:
        return self._demand(protocol.DescribeKernel(ref=ref))

    def problem(self, ref: KernelRef) -> Problem:
        return self._demand(protocol.ProblemOfCall(ref=ref))

    def collect(
        self, ref: KernelRef, chip: Chip | None, catalogue: dict[str, KernelRef]
    ) -> Collected:
        """The kernels that a model calls. Raises ``KernelImportError``."""
        names, refs = tuple(catalogue), tuple(catalogue.values())
        return self._demand(protocol.CollectKernels(ref=ref, chip=chip, names=names, refs=refs))

    def choices(self, ref: KernelRef, problem: Problem, chip: Chip | None = None) -> Choices:
        """Raises ``InvalidInputError`` with the kernel's own sentence for an impossible problem."""
        return self._demand(protocol.ListChoices(ref=ref, problem=problem, chip=chip))

    def check(self, ref: KernelRef, problem: Problem, chip: Chip) -> None:
        """Raises ``KernelImportError`` with what does not fit together in the declaration."""
        self._demand(protocol.CheckDeclaration(ref=ref, problem=problem, chip=chip))

    def trace(
        self,
        ref: KernelRef,
        problem: Problem,
        config: Config,
        *,
        orders: bool,
        chip: Chip | None = None,
    ) -> Traces | Failure:
        """The traces of a config (one per grid order, or one), or why there are none.

        A kernel that asks for the TPU while it is traced needs the ``chip``.
        """
        question = protocol.TraceConfig(
            ref=ref, problem=problem, chip=chip, config=config, orders=orders
        )
        return self._try(question)

    def compile(self, ref: KernelRef, problem: Problem, config: Config, chip: Chip) -> Attempt:
        """What became of one candidate; never raises for what the candidate does."""
        started = time.monotonic()
        answer = self._try(
            protocol.CompileConfig(ref=ref, problem=problem, chip=chip, config=config)
        )
        return Attempt(answer=answer, seconds=time.monotonic() - started)

    def draw(
        self, ref: KernelRef, problem: Problem, config: Config, chip: Chip, steps: int
    ) -> Drawn | Failure:
        """Compile a config again, and draw its first and last grid steps."""
        return self._try(
            protocol.DrawConfig(ref=ref, problem=problem, chip=chip, config=config, steps=steps)
        )

    def baseline(self, ref: KernelRef, problem: Problem, chip: Chip) -> XlaCost | Failure:
        """XLA's figures for the baseline."""
        return self._try(protocol.CompileBaseline(ref=ref, problem=problem, chip=chip))

    def verify(self, ref: KernelRef, problem: Problem, config: Config, chip: Chip) -> Verdict:
        """What the gate says of a config; one that ends the child, or hangs, is not verified."""
        found = self._try(protocol.VerifyConfig(ref=ref, problem=problem, chip=chip, config=config))
        if isinstance(found, Verdict):
            return found
        return Verdict(ok=None, reason=unverified_text(found))

    def executable(
        self,
        ref: KernelRef,
        problem: Problem,
        config: Config | None,
        name: str,
        chip: Chip | None,
        path: Path,
    ) -> Failure | None:
        """Compile a config (None: plain XLA) and write what the measuring process loads."""
        question = protocol.WriteExecutable(
            ref=ref, problem=problem, chip=chip, config=config, name=name, path=str(path)
        )
        return self._try(question)

    def close(self) -> None:
        self.process.close()

    def _try(self, question: ChildQuestion[T]) -> T | Failure:
        """The answer to something that a candidate may fail at."""
        answer = self._ask(question, self.limit_s)
        return _failure(answer) if isinstance(answer, Raised) else answer

    def _ask(self, question: ChildQuestion[T], limit_s: float) -> T | Raised | Crashed | TimedOut:
        if not self.process.running:
            self.start()
        try:
            return self._answer(question, limit_s)
        except ChildTimedOutError as error:
            return TimedOut(reason=str(error), limit_s=limit_s)
        except ChildDiedError as error:
            return Crashed(reason=str(error), log_tail=error.log_tail)

    def _answer(self, question: ChildQuestion[T], limit_s: float) -> T | Raised:
        return question.read(self.process.ask(to_data(question), limit_s))

    def start(self) -> None:
        """Start the child and import JAX there: that time is not the candidate's."""
        for _ in range(_STARTS - 1):
            if self._first_answer() is None:
                return
        reason = self._first_answer()
        if reason is not None:
            raise CompilerUnavailableError(_cannot_work(self.process.python, reason))

    def _first_answer(self) -> str | None:
        """None when the child is ready, else why it is not."""
        try:
            answer = self._answer(protocol.Hello(), START_LIMIT_S)
        except ChildTimedOutError as error:
            return str(error)
        except ChildDiedError as error:
            return f"{error}\n{error.log_tail}"
        if isinstance(answer, Raised):
            self.process.stop()
            return f"{answer.type}: {answer.message}"
        return None

    def _demand(self, question: ChildQuestion[T]) -> T:
        """The answer to something that must work for any search to make sense."""
        answer = self._ask(question, START_LIMIT_S)
        if isinstance(answer, TimedOut):
            raise CompilerUnavailableError(f"the compiler process hangs: {answer.reason}")
        if isinstance(answer, Crashed):
            tail = answer.log_tail.strip().splitlines()[-1:] or ["it left no message"]
            raise CompilerUnavailableError(f"{answer.reason}: {tail[0]}")
        if not isinstance(answer, Raised):
            return answer
        if answer.stage == protocol.LOAD:
            raise KernelImportError(answer.message)
        if answer.stage == protocol.NAME:
            raise NoDeclarationError(answer.message)
        if answer.stage == protocol.PROBLEM:
            raise InvalidInputError(answer.message)
        raise CompilerUnavailableError(f"{answer.type}: {answer.message}")


def _cannot_work(python: str, reason: str) -> str:
    """A sentence about an interpreter that does not answer the first question."""
    lacks = _LACKS.search(reason)
    if lacks:
        return (
            f"{python} lacks what compiling needs ({lacks.group(1).strip()}): install "
            "pallas-autotune[search] there, or jax[tpu] and numpy"
        )
    if "Unknown option: -P" in reason:
        return f"{python} is older than Python 3.11, which is the oldest that can compile"
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    detail = lines[0] if len(lines) < 2 else f"{lines[0]}: {lines[-1]}"
    return f"the compiler process does not start under {python}: {detail}"


def _failure(raised: Raised) -> Failure:
    """An error of a candidate as an outcome; what fails before the compiler is not its message."""
    if raised.stage == protocol.CONSTRAINT:
        return Illegal(reason=raised.message)
    if raised.stage == protocol.COMPILE:
        return classify(raised.type, raised.message)
    if raised.stage == protocol.REFUSED:
        return CompileFailed(reason=raised.message)
    reason = f"{raised.stage} raised {raised.type}: {raised.message}".rstrip(": ")
    return CompileFailed(
        reason=without_mesh_text(raised.message) or reason.splitlines()[0][:240],
        message=raised.message,
        raised_at=raised.raised_at,
    )
