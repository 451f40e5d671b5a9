"""The measuring process from the parent's side: opened, loaded, asked for times; started again
after an abort, with what was loaded before, but without what ended it."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from autotune.compiler import libtpu
from autotune.compiler.process import (
    START_LIMIT_S,
    ChildDiedError,
    ChildTimedOutError,
    CompilerProcess,
)
from autotune.domain.chip import Chip
from autotune.domain.codec import to_data
from autotune.domain.config import Config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.measurement import NotMeasured
from autotune.domain.problem import Problem
from autotune.measuring.race import DeviceLostError

WORKER = Path(__file__).parents[1] / "child" / "measure" / "worker.py"
_MEMORY_BYTES = 32 << 30


class CannotMeasureError(Exception):
    """Nothing can be measured here; the message is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringTask:
    """What is run. ``chip`` is None where the device is no TPU."""

    ref: KernelRef
    problem: Problem
    chip: Chip | None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A candidate (None: plain XLA) and the file of its executable, where it was compiled."""

    name: str
    config: Config | None
    path: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The one device that is used. ``method``: how its times are taken, *device time* or *wall
    clock*; the two are never compared. ``count``: how many devices the machine has."""

    platform: str
    kind: str
    id: int
    cores: int
    count: int
    method: str

    def __str__(self) -> str:
        return f"{self.kind}, device {self.id} of {self.count}"


def measuring_process(platform: str, python: str = sys.executable) -> CompilerProcess:
    """A child that opens the accelerator of a JAX platform (tpu, cuda, cpu) when it is asked to."""
    return CompilerProcess(
        python,
        _MEMORY_BYTES,
        worker=WORKER,
        what="measuring process",
        environment=partial(libtpu.measuring_environment, platform=platform),
    )


@dataclass(slots=True)
class Child:
    """``limit_s``: wall clock for each candidate: to load and warm up, and for each run."""

    process: CompilerProcess
    work: MeasuringTask
    number: int = 0
    limit_s: float = 60.0
    loaded: dict[str, Program] = field(default_factory=dict)

    def open(self) -> Device:
        """Start, open the device, make the inputs. Raises ``CannotMeasureError``."""
        try:
            self._demand({"do": "hello"})
            found = Device(**self._demand({"do": "open", "device": self.number}))
            self._demand({"do": "inputs", "seed": self.work.seed})
        except ChildTimedOutError as error:
            raise CannotMeasureError(f"the accelerator does not open: {error}") from error
        except ChildDiedError as error:
            raise CannotMeasureError(_with_tail(error)) from error
        return found

    def load(self, program: Program) -> NotMeasured | str:
        """Make a candidate ready; a note, empty where nothing is to be said. Raises
        ``DeviceLostError`` where the device does not open again."""
        request = {
            "do": "load",
            "name": program.name,
            "config": program.config and to_data(program.config),
            "path": None if program.path is None else str(program.path),
        }
        answer = self._tried(request, self.limit_s)
        if isinstance(answer, NotMeasured):
            return answer
        self.loaded[program.name] = program
        return str(answer["note"])

    def sample(self, order: Sequence[str]) -> list[float | NotMeasured]:
        """Microseconds of each run. What ends the process is found by running one at a time.

        Raises ``DeviceLostError``.
        """
        answer = self._tried({"do": "sample", "order": list(order)}, self.limit_s * len(order))
        if not isinstance(answer, NotMeasured):
            return [NotMeasured(one) if isinstance(one, str) else one / 1e6 for one in answer]
        if len(order) == 1:
            self.loaded.pop(order[0], None)
            return [answer]
        bad: dict[str, NotMeasured] = {}
        times: list[float | NotMeasured] = []
        for name in order:
            one = bad.get(name) or self.sample([name])[0]
            if isinstance(one, NotMeasured):
                bad[name] = one
            times.append(one)
        return times

    def close(self) -> None:
        self.process.close()

    def _tried(self, request: dict[str, Any], limit_s: float) -> Any:
        """The answer, or why the candidate has none; the process is there again afterwards."""
        if not self.process.running:
            self._again()
        try:
            answer = self.process.ask(self._whole(request), limit_s)
        except ChildTimedOutError as error:
            return NotMeasured(f"it was killed: {error}")
        except ChildDiedError as error:
            return NotMeasured(f"it ended the measuring process: {_with_tail(error)}")
        if "error" in answer:
            return NotMeasured(
                _first_and_last("{stage} raised {type}: {message}".format(**answer["error"]))
            )
        return answer["ok"]

    def _again(self) -> None:
        """Open the device once more and load what had been loaded."""
        try:
            self.open()
        except CannotMeasureError as error:
            raise DeviceLostError(f"the device was lost: {error}") from error
        for program in list(self.loaded.values()):
            found = self.load(program)
            if isinstance(found, NotMeasured):
                raise DeviceLostError(f"{program.name} cannot be loaded again: {found.reason}")

    def _demand(self, request: dict[str, Any]) -> Any:
        answer = self.process.ask(self._whole(request), START_LIMIT_S)
        if "error" in answer:
            self.process.stop()
            error = answer["error"]
            named = "" if error["stage"] == "open" else f"{error['type']}: "
            raise CannotMeasureError(f"{named}{error['message']}".splitlines()[0])
        return answer["ok"]

    def _whole(self, request: dict[str, Any]) -> dict[str, Any]:
        work = self.work
        chip = None if work.chip is None else work.chip.value
        return {
            "ref": asdict(work.ref),
            "problem": to_data(work.problem),
            "chip": chip,
            **request,
        }


def _first_and_last(text: str) -> str:
    """JAX puts a whole traceback into a message: what happened, and its cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:240] if len(lines) == 1 else f"{lines[0][:160]} … {lines[-1][:160]}"


def _with_tail(error: ChildDiedError) -> str:
    tail = error.log_tail.strip().splitlines()[-1:]
    return f"{error}: {tail[0][:200]}" if tail else str(error)
