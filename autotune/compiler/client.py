"""Typed questions to a compiler process: outcomes and values in, no dictionaries out."""

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.compiler import protocol
from autotune.compiler.messages import classify
from autotune.compiler.process import (
    START_LIMIT_S,
    ChildDiedError,
    ChildTimedOutError,
    CompilerProcess,
)
from autotune.domain.chip import Chip, ChipInfo
from autotune.domain.compiled import Attempt, Compiled, XlaCost, compiled_from_data
from autotune.domain.config import Config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import Choices, KernelSpec, spec_from_data
from autotune.domain.outcome import CompileFailed, Crashed, Failure, Illegal, TimedOut
from autotune.domain.problem import Problem
from autotune.domain.toolchain import Toolchain
from autotune.domain.trace import Trace, trace_from_data
from autotune.domain.verdict import Verdict, verdict_from_data
from autotune.errors import CompilerUnavailableError, InvalidInputError, KernelImportError
from autotune.simulator.drawing.picture import Picture, picture_from_data

_STARTS = 2  # a machine under load may fail once; an interpreter that cannot work fails always
_LACKS = re.compile(r"(?:ModuleNotFoundError|ImportError): (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A picture of the run of a program (its hash), or None and the ``refusal`` why."""

    program: str
    picture: Picture | None
    refusal: str


@dataclass(slots=True)
class Compiler:
    """One compiler child. ``limit_s``: wall clock for one candidate.

    Every method raises ``CompilerUnavailableError`` when the child cannot even be started, and
    ``CompilerInterruptedError`` when the process has been interrupted.
    """

    process: CompilerProcess
    limit_s: float = 120.0

    def toolchain(self) -> Toolchain:
        """Versions in the child. Raises ``CompilerUnavailableError`` without a TPU compiler."""
        data = self._demand(protocol.hello(), START_LIMIT_S)["toolchain"]
        if data["libtpu"] == "none":
            raise CompilerUnavailableError(
                "the compiling interpreter has no libtpu: install pallas-autotune[search]"
            )
        return Toolchain(**data)

    def chip_info(self, chip: Chip) -> ChipInfo:
        """Raises ``CompilerUnavailableError`` when this toolchain does not know the chip."""
        return protocol.chip_from_data(self._demand(protocol.chip_info(chip), START_LIMIT_S))

    def describe(self, ref: KernelRef) -> KernelSpec:
        return spec_from_data(self._demand(protocol.describe(ref), START_LIMIT_S))

    def choices(self, ref: KernelRef, problem: Problem, chip: Chip | None = None) -> Choices:
        """Raises ``InvalidInputError`` with the kernel's own sentence for an impossible problem."""
        data = self._demand(protocol.choices(ref, problem, chip), START_LIMIT_S)
        if data["impossible"]:
            raise InvalidInputError(str(data["impossible"]))
        return Choices(axes=data["choices"], default=data["default"], grid=tuple(data["grid"]))

    def check(self, ref: KernelRef, problem: Problem, chip: Chip) -> None:
        """Raises ``KernelImportError`` with what does not fit together in the declaration."""
        self._demand(protocol.check(ref, problem, chip), START_LIMIT_S)

    def trace(
        self,
        ref: KernelRef,
        problem: Problem,
        config: Config,
        *,
        orders: bool,
        chip: Chip | None = None,
    ) -> list[Trace] | Failure:
        """The traces of a config (one per grid order, or one), or why there are none.

        A kernel that asks for the TPU while it is traced needs the ``chip``.
        """
        request = protocol.trace(ref, problem, [config], orders=orders, chip=chip)
        answer = self._ask(request, self.limit_s)
        if not isinstance(answer, dict):
            return answer
        found = answer if "error" in answer else answer["ok"][0]
        if "error" in found:
            return _failure(found)
        return [trace_from_data(trace) for trace in found["ok"]]

    def compile(self, ref: KernelRef, problem: Problem, config: Config, chip: Chip) -> Attempt:
        """What became of one candidate; never raises for what the candidate does."""
        started = time.monotonic()
        answer = self._compiled(protocol.compile_config(ref, problem, config, chip))
        return Attempt(answer=answer, seconds=time.monotonic() - started)

    def draw(
        self, ref: KernelRef, problem: Problem, config: Config, chip: Chip, steps: int
    ) -> Drawn | Failure:
        """Compile a config again, and draw its first and last grid steps."""
        answer = self._ask(protocol.draw(ref, problem, config, chip, steps), self.limit_s)
        if not isinstance(answer, dict):
            return answer
        if "error" in answer:
            return _failure(answer)
        found, picture = answer["ok"], answer["ok"]["picture"]
        return Drawn(
            program=found["program"],
            picture=None if picture is None else picture_from_data(picture),
            refusal=found["refusal"],
        )

    def baseline(self, ref: KernelRef, problem: Problem, chip: Chip) -> XlaCost | Failure:
        """XLA's figures for the baseline."""
        answer = self._ask(protocol.baseline(ref, problem, chip), self.limit_s)
        if not isinstance(answer, dict):
            return answer
        return _failure(answer) if "error" in answer else XlaCost(**answer["ok"])

    def verify(self, ref: KernelRef, problem: Problem, config: Config, chip: Chip) -> Verdict:
        """What the gate says of a config; one that ends the child, or hangs, is not verified."""
        answer = self._ask(protocol.verify(ref, problem, config, chip), self.limit_s)
        if isinstance(answer, dict) and "ok" in answer:
            return verdict_from_data(answer["ok"])
        failure = _failure(answer) if isinstance(answer, dict) else answer
        return Verdict(ok=None, reason=f"{failure.kind}: {failure.reason}")

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
        request = protocol.executable(ref, problem, config, name, chip, str(path))
        answer = self._ask(request, self.limit_s)
        if not isinstance(answer, dict):
            return answer
        return _failure(answer) if "error" in answer else None

    def close(self) -> None:
        self.process.close()

    def _compiled(self, request: protocol.Request) -> tuple[Trace, Compiled] | Failure:
        answer = self._ask(request, self.limit_s)
        if not isinstance(answer, dict):
            return answer
        if "error" in answer:
            return _failure(answer)
        data = answer["ok"]
        return trace_from_data(data["trace"]), compiled_from_data(data["compiled"])

    def _ask(
        self, request: protocol.Request, limit_s: float
    ) -> dict[str, Any] | Crashed | TimedOut:
        if not self.process.running:
            self._start()
        try:
            return self.process.ask(request, limit_s)
        except ChildTimedOutError as error:
            return TimedOut(reason=str(error), limit_s=limit_s)
        except ChildDiedError as error:
            return Crashed(reason=str(error), log_tail=error.log_tail)

    def _start(self) -> None:
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
            answer = self.process.ask(protocol.hello(), START_LIMIT_S)
        except ChildTimedOutError as error:
            return str(error)
        except ChildDiedError as error:
            return f"{error}\n{error.log_tail}"
        if "error" in answer:
            self.process.stop()
            return "{type}: {message}".format(**answer["error"])
        return None

    def _demand(self, request: protocol.Request, limit_s: float) -> Any:
        """The answer to something that must work for any search to make sense."""
        answer = self._ask(request, limit_s)
        if isinstance(answer, TimedOut):
            raise CompilerUnavailableError(f"the compiler process hangs: {answer.reason}")
        if isinstance(answer, Crashed):
            tail = answer.log_tail.strip().splitlines()[-1:] or ["it left no message"]
            raise CompilerUnavailableError(f"{answer.reason}: {tail[0]}")
        if "error" in answer:
            error = answer["error"]
            if error["stage"] == "load":
                raise KernelImportError(error["message"])
            raise CompilerUnavailableError(f"{error['type']}: {error['message']}")
        return answer["ok"]


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


def _failure(answer: dict[str, Any]) -> Failure:
    """An error of a candidate as an outcome; what fails before the compiler is not its message."""
    error = answer["error"]
    if error["stage"] == "constraint":
        return Illegal(reason=str(error["message"]))
    if error["stage"] == "compile":
        return classify(error["type"], error["message"])
    reason = f"{error['stage']} raised {error['type']}: {error['message']}".rstrip(": ")
    return CompileFailed(
        reason=reason.splitlines()[0][:240],
        message=error["message"],
        raised_at=error.get("raised_at", ""),
    )
