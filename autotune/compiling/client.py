"""Typed questions to a compiler process: outcomes and values in, no dictionaries out.

What a message of the TPU compiler means is decided by one pure function, ``classify``, which is
tested on recorded messages.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from autotune.compiling.limits import CANDIDATE_LIMIT_S, START_LIMIT_S
from autotune.compiling.process import ChildDiedError, ChildTimedOutError
from autotune.compiling.protocol import COMPILE, CONSTRAINT, REFUSED, Raised
from autotune.domain import compilers as questions
from autotune.domain.codec import from_data, to_data
from autotune.domain.compilers import Attempt
from autotune.domain.errors import CompilerUnavailableError, InvalidInputError, NoDeclarationError
from autotune.domain.evidence import Verdict
from autotune.domain.outcome import CompileFailed, Crashed, Failure, Illegal, OutOfVmem, TimedOut
from autotune.domain.step import CompiledStep

Refusal = OutOfVmem | CompileFailed

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_SIZE = r"([\d.]+)([KMG]?)"

# Where the scoped limit is passed (jax 0.6 without the E1001, all later ones with it).
_SCOPED = re.compile(rf"Scoped allocation with size {_SIZE} and limit {_SIZE} exceeded scoped vmem")
# Where the chip's capacity is passed, and on v3 and v4 always.
_CAPACITY = re.compile(rf"memory space vmem\. Used {_SIZE} of {_SIZE} vmem")
# One buffer alone is above the capacity (all versions seen).
_ONE_BUFFER = re.compile(
    r"Allocation \(size=(\d+)\)() would exceed memory \(size=(\d+)\)() :: .*?space=vmem", re.DOTALL
)
_OTHER_SPACE = re.compile(rf"memory space (\w+)\. Used {_SIZE} of {_SIZE}")
# HBM from jax 0.10 on; jax 0.6 says it as above.
_HBM = re.compile(
    rf"out of memory on (HBM), the total memory required [^(]*\({_SIZE}\) exceeds available HBM "
    rf"\({_SIZE}\)"
)

_UNSUPPORTED = re.compile(
    r"unsupported|not implemented|unimplemented|notimplementederror|not supported|E2001|E2003",
    re.IGNORECASE,
)
_NOISE = re.compile(r"^(INTERNAL|INVALID_ARGUMENT|UNIMPLEMENTED): ")
_FRAMING = re.compile(
    r"Mosaic failed to compile TPU kernel(?: with MLIR module name `[^`]*` HLO name `[^`]*`)?: |"
    r"(?<=: )CompileTimeMosaic\w+:\s*"  # the number before it says the same
)
_ANNOUNCED = re.compile(r":\s*\n\s*")


# JAX's words where a shard_map has no mesh, or another than the one that code is traced for.
_MESH = re.compile(
    r"unbound axis name|mesh passed to shard_map|product of mesh_shape|mesh cannot be empty|"
    r"context mesh|refer to an axis marked as manual",
    re.IGNORECASE,
)


def without_mesh(message: str) -> str | None:
    """What to do about a function that JAX refuses for its mesh; None for anything else."""
    if not _MESH.search(message):
        return None
    return (
        "the function is written for a mesh of devices: give the declaration "
        "`mesh=lambda problem: {'x': 4}` with the names and sizes of its axes, and shard_map "
        "`mesh=jax.sharding.get_abstract_mesh()` in `build` or in the function that it returns "
        f"(JAX: {message.splitlines()[0][:120]})"
    )


def classify(error_type: str, message: str) -> Refusal:
    """Out of VMEM with used and allowed bytes, or a failure with one line of reason.

    ``error_type`` is the name of the Python exception. The whole message is kept in a failure.
    """
    for pattern in (_SCOPED, _CAPACITY, _ONE_BUFFER):
        match = pattern.search(message)
        if match:
            used, allowed = _bytes(*match.group(1, 2)), _bytes(*match.group(3, 4))
            return OutOfVmem(used_bytes=used, allowed_bytes=allowed)
    space = _OTHER_SPACE.search(message) or _HBM.search(message)
    if space:
        return CompileFailed(
            reason=f"out of {space.group(1).upper()}: needs {''.join(space.group(2, 3))}, "
            f"{''.join(space.group(4, 5))} are there",
            message=message,
        )
    unsupported = bool(_UNSUPPORTED.search(f"{error_type} {message}"))
    return CompileFailed(
        reason=_first_sentence(error_type, message), unsupported=unsupported, message=message
    )


def _bytes(number: str, unit: str) -> int:
    """The compiler rounds to two decimals of the unit."""
    return round(float(number) * _UNITS[unit])


def _first_sentence(error_type: str, message: str) -> str:
    """The first line that says something, without the framing that each message has; with what it
    announces where it ends in a colon."""
    if _FOREIGN in message:
        return _REINSTALL
    text = _ANNOUNCED.sub(": ", _FRAMING.sub("", _NOISE.sub("", message.strip())))
    line = next((part.strip() for part in text.splitlines() if part.strip()), error_type)
    return line if len(line) <= 240 else line[:237] + "…"


T = TypeVar("T")

_STARTS = 2  # a machine under load may fail once; an interpreter that cannot work fails always
_UNKNOWN_OPTION = re.compile(r"(?:Unknown command line|specified for) flag '(\w+)'")
_LACKS = re.compile(r"(?:ModuleNotFoundError|ImportError): (.*)")
_FOREIGN = "Could not convert JSON string to proto"  # a field of another release
_REINSTALL = (
    "its libtpu cannot read what its JAX writes: install jax[tpu] there again, which brings the "
    "libtpu of the same release"
)


class ChildProcess(Protocol):
    """What answers questions: a process here, or a farm. As ``CompilerProcess`` says."""

    python: str

    @property
    def underway(self) -> questions.Underway | None: ...

    @property
    def running(self) -> bool: ...

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]: ...

    def stop(self) -> None: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


def answer_of(
    process: ChildProcess, question: questions.CompilerQuestion[Any], limit_s: float
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
    limit_s: float = CANDIDATE_LIMIT_S
    asked: questions.CompilerQuestion[Any] | None = None

    def ask(self, question: questions.CompilerQuestion[T]) -> T:
        """Raises ``CompilerUnavailableError`` when the child cannot even be started, and
        ``CompilerInterruptedError`` when the process has been interrupted."""
        answer: T
        self.asked = question
        answer = (
            self._required(question)
            if isinstance(question, questions.Required)
            else self._try(question)
        )
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
        answer = answer_of(self.process, questions.DescribeToolchain(), START_LIMIT_S)
        if isinstance(answer, Raised):
            self.process.stop()
            return f"{answer.type}: {answer.message}"
        if isinstance(answer, Crashed):
            return f"{answer.reason}\n{answer.log_tail}"
        return answer.reason if isinstance(answer, TimedOut) else None

    def _required(self, question: questions.Required[Any]) -> Any:
        if not self.process.running:
            self.start()
        answer = answer_of(self.process, question, max(START_LIMIT_S, self.limit_s))
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
            if _FOREIGN in answer.message:
                raise CompilerUnavailableError(
                    f"{self.process.python} cannot compile: {_REINSTALL}"
                )
            raise CompilerUnavailableError(f"{answer.type}: {answer.message}")
        if isinstance(question, questions.DescribeToolchain) and answer.libtpu == "none":
            from autotune.compiling.environments.packages import pip_install

            raise CompilerUnavailableError(
                f"the compiling interpreter has no libtpu: {pip_install('search')}"
            )
        return answer

    def _try(self, question: questions.CompilerQuestion[Any]) -> Any:
        started = time.monotonic()
        if not self.process.running:
            self.start()
        answer = answer_of(self.process, question, self.limit_s)
        if isinstance(answer, Raised) and (question.kind, answer.stage) == ("step", questions.NAME):
            raise NoDeclarationError(answer.message)
        outcome = _failure(answer) if isinstance(answer, Raised) else answer
        if isinstance(outcome, CompiledStep) and outcome.is_running:
            self.process.stop()
        if isinstance(question, questions.CompileConfig):
            return Attempt(answer=outcome, seconds=time.monotonic() - started)
        if isinstance(question, questions.VerifyConfig) and not isinstance(outcome, Verdict):
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
    if raised.stage in (REFUSED, questions.LOAD, questions.NAME, questions.PROBLEM):
        return CompileFailed(reason=raised.message)
    reason = f"{raised.stage} raised {raised.type}: {raised.message}".rstrip(": ")
    return CompileFailed(
        reason=without_mesh(raised.message) or reason.splitlines()[0][:240],
        message=raised.message,
        raised_at=raised.raised_at,
    )
