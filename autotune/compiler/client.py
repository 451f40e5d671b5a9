"""Typed questions to a compiler process: outcomes and values in, no dictionaries out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.catalogue import KernelRef
from autotune.chip import Chip, ChipInfo
from autotune.compiled import Compiled, compiled_from_data
from autotune.compiler import protocol
from autotune.compiler.process import START_LIMIT_S, ChildDied, ChildTimedOut, CompilerProcess
from autotune.compilertext.messages import classify
from autotune.config import AxisValue, Config
from autotune.errors import CompilerUnavailableError, InvalidInputError, KernelImportError
from autotune.kernelspec import KernelSpec, spec_from_data
from autotune.outcome import CompileFailed, Crashed, Illegal, OutOfVmem, TimedOut
from autotune.problem import Problem
from autotune.toolchain import Toolchain
from autotune.trace.model import Trace, trace_from_data

Failure = OutOfVmem | CompileFailed | Crashed | TimedOut | Illegal


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The raw space of a problem: values per axis, the default, the names of the grid axes."""

    axes: dict[str, list[AxisValue]]
    default: dict[str, AxisValue]
    grid: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaCost:
    """What XLA says of the plain-XLA version of a problem."""

    flops: float
    bytes: float
    estimated_cycles: int


@dataclass(slots=True)
class Compiler:
    """One compiler child. ``limit_s``: wall clock for one candidate."""

    process: CompilerProcess
    limit_s: float = 120.0
    _ready: bool = field(default=False, init=False)

    def toolchain(self) -> Toolchain:
        """Versions in the child. Raises ``CompilerUnavailableError`` when it has no TPU compiler."""
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

    def choices(self, ref: KernelRef, problem: Problem) -> Choices:
        """Raises ``InvalidInputError`` with the kernel's own sentence for an impossible problem."""
        data = self._demand(protocol.choices(ref, problem), START_LIMIT_S)
        if data["impossible"]:
            raise InvalidInputError(str(data["impossible"]))
        return Choices(axes=data["choices"], default=data["default"], grid=tuple(data["grid"]))

    def traces(
        self, ref: KernelRef, problem: Problem, configs: Sequence[Config], *, orders: bool
    ) -> list[list[Trace] | Failure]:
        """Per config its traces (one per grid order, or one), or why there are none."""
        request = protocol.trace(ref, problem, list(configs), orders=orders)
        answers = self._demand(request, self.limit_s * max(1, len(configs)))
        return [
            [trace_from_data(t) for t in answer["ok"]] if "ok" in answer else _failure(answer)
            for answer in answers
        ]

    def compile(
        self, ref: KernelRef, problem: Problem, config: Config, chip: Chip
    ) -> tuple[Trace, Compiled] | Failure:
        """What became of one candidate; never raises for what the candidate does."""
        request = protocol.compile_config(ref, problem, config, chip)
        answer = self._ask(request, self.limit_s)
        if not isinstance(answer, dict):
            return answer
        if "error" in answer:
            return _failure(answer)
        data = answer["ok"]
        return trace_from_data(data["trace"]), compiled_from_data(data["compiled"])

    def baseline(self, ref: KernelRef, problem: Problem, chip: Chip) -> XlaCost | Failure:
        """XLA's figures for the baseline."""
        answer = self._ask(protocol.baseline(ref, problem, chip), self.limit_s)
        if not isinstance(answer, dict):
            return answer
        return _failure(answer) if "error" in answer else XlaCost(**answer["ok"])

    def verify(
        self, ref: KernelRef, problem: Problem, config: Config, seeds: Sequence[int]
    ) -> dict[str, Any] | Failure:
        """The interpreter's verdict as data; see ``autotune.compiler.interpret``."""
        request = protocol.verify(ref, problem, config, list(seeds))
        answer = self._ask(request, self.limit_s)
        if not isinstance(answer, dict):
            return answer
        if "error" in answer:
            return _failure(answer)
        found: dict[str, Any] = answer["ok"]
        return found

    def close(self) -> None:
        self.process.close()

    def _ask(
        self, request: protocol.Request, limit_s: float
    ) -> dict[str, Any] | Crashed | TimedOut:
        try:
            if not self._ready:  # the time to start and import JAX is not the candidate's
                self.process.ask(protocol.hello(), START_LIMIT_S)
                self._ready = True
            return self.process.ask(request, limit_s)
        except ChildTimedOut as error:
            self._ready = False
            return TimedOut(reason=str(error), limit_s=limit_s)
        except ChildDied as error:
            self._ready = False
            return Crashed(reason=str(error), log_tail=error.log_tail)

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
            if error["type"] in ("ModuleNotFoundError", "ImportError"):
                raise CompilerUnavailableError(
                    f"the compiling interpreter lacks what a search needs ({error['message']}): "
                    "install pallas-autotune[search]"
                )
            raise CompilerUnavailableError(f"{error['type']}: {error['message']}")
        return answer["ok"]


def _failure(answer: dict[str, Any]) -> Failure:
    """An error of a candidate as an outcome; what fails before the compiler is not its message."""
    error = answer["error"]
    if error["stage"] == "compile":
        return classify(error["type"], error["message"])
    reason = f"{error['stage']} raised {error['type']}: {error['message']}".strip()
    return CompileFailed(reason=reason.splitlines()[0][:240], message=error["message"])
