"""Typed questions to a compiler process: outcomes and values in, no dictionaries out."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from autotune.compiling.messages import classify, without_mesh
from autotune.compiling.process import START_LIMIT_S, ChildDiedError, ChildTimedOutError
from autotune.compiling.protocol import COMPILE, CONSTRAINT, REFUSED, Raised
from autotune.domain.codec import from_data, to_data
from autotune.domain.compiled import Attempt
from autotune.domain.compilers import (
    CompileConfig,
    CompilerQuestion,
    DescribeToolchain,
    Required,
    VerifyConfig,
)
from autotune.domain.errors import CompilerUnavailableError, InvalidInputError
from autotune.domain.outcome import CompileFailed, Crashed, Failure, Illegal, TimedOut
from autotune.domain.verdict import Verdict

T = TypeVar("T")

_STARTS = 2  # a machine under load may fail once; an interpreter that cannot work fails always
_UNKNOWN_OPTION = re.compile(r"(?:Unknown command line|specified for) flag '(\w+)'")
_LACKS = re.compile(r"(?:ModuleNotFoundError|ImportError): (.*)")


class ChildProcess(Protocol):
    """What answers questions: a process here, or a farm. As ``CompilerProcess`` says."""

    python: str

    @property
    def left_s(self) -> float | None: ...

    @property
    def running(self) -> bool: ...

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]: ...

    def stop(self) -> None: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


def answer_of(
    process: ChildProcess, question: CompilerQuestion[Any], limit_s: float
) -> Any | Raised | Crashed | TimedOut:
    """What a child says to a question, a value of its ``form``, or what became of the child."""
    try:
        answer = process.ask(to_data(question), limit_s)
    except ChildTimedOutError as error:
        return TimedOut(reason=str(error), limit_s=limit_s)
    except ChildDiedError as error:
        return Crashed(reason=str(error), log_tail=error.log_tail)
    if "error" in answer:
        return from_data(Raised, answer["error"])
    return question.form and from_data(question.form, answer["ok"])


@dataclass(slots=True)
class Compiler:
    """One compiler child. ``limit_s``: for one candidate, without what it waits for a processor
    (ten times as much with that)."""

    process: ChildProcess
    limit_s: float = 120.0
    asked: CompilerQuestion[Any] | None = None

    def ask(self, question: CompilerQuestion[T]) -> T:
        """Raises ``CompilerUnavailableError`` when the child cannot even be started, and
        ``CompilerInterruptedError`` when the process has been interrupted."""
        answer: T
        self.asked = question
        answer = self._required(question) if isinstance(question, Required) else self._try(question)
        return answer

    def start(self) -> None:
        """Start the child and import JAX there: that time is not the candidate's."""
        for _ in range(_STARTS - 1):
            if self._first_answer() is None:
                return
        reason = self._first_answer()
        if reason is not None:
            raise CompilerUnavailableError(_cannot_work(self.process.python, reason))

    def close(self) -> None:
        self.process.close()

    def _first_answer(self) -> str | None:
        """None when the child is ready, else why it is not."""
        answer = answer_of(self.process, DescribeToolchain(), START_LIMIT_S)
        if isinstance(answer, Raised):
            self.process.stop()
            return f"{answer.type}: {answer.message}"
        if isinstance(answer, Crashed):
            return f"{answer.reason}\n{answer.log_tail}"
        return answer.reason if isinstance(answer, TimedOut) else None

    def _required(self, question: Required[Any]) -> Any:
        if not self.process.running:
            self.start()
        answer = answer_of(self.process, question, START_LIMIT_S)
        if isinstance(answer, TimedOut):
            raise CompilerUnavailableError(f"the compiler process hangs: {answer.reason}")
        if isinstance(answer, Crashed):
            if unknown := _UNKNOWN_OPTION.search(answer.log_tail):
                raise InvalidInputError(
                    f"the libtpu of {self.process.python} does not take the compiler option "
                    f"{unknown[1]}: leave it out, or mend its name or value"
                )
            tail = answer.log_tail.strip().splitlines()[-1:] or ["it left no message"]
            raise CompilerUnavailableError(f"{answer.reason}: {tail[0]}")
        if isinstance(answer, Raised):
            if answer.stage in question.errors:
                raise question.errors[answer.stage](answer.message)
            raise CompilerUnavailableError(f"{answer.type}: {answer.message}")
        if isinstance(question, DescribeToolchain) and answer.libtpu == "none":
            raise CompilerUnavailableError(
                "the compiling interpreter has no libtpu: install pallas-autotune[search]"
            )
        return answer

    def _try(self, question: CompilerQuestion[Any]) -> Any:
        started = time.monotonic()
        if not self.process.running:
            self.start()
        answer = answer_of(self.process, question, self.limit_s)
        outcome = _failure(answer) if isinstance(answer, Raised) else answer
        if isinstance(question, CompileConfig):
            return Attempt(answer=outcome, seconds=time.monotonic() - started)
        if isinstance(question, VerifyConfig) and not isinstance(outcome, Verdict):
            return Verdict(ok=None, failure=outcome)
        return outcome


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
    if raised.stage == CONSTRAINT:
        return Illegal(reason=raised.message)
    if raised.stage == COMPILE:
        return classify(raised.type, raised.message)
    if raised.stage == REFUSED:
        return CompileFailed(reason=raised.message)
    reason = f"{raised.stage} raised {raised.type}: {raised.message}".rstrip(": ")
    return CompileFailed(
        reason=without_mesh(raised.message) or reason.splitlines()[0][:240],
        message=raised.message,
        raised_at=raised.raised_at,
    )
