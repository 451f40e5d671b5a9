"""One measuring session, from the parent: compile elsewhere, load, race, and what came of it.

The measuring process is opened, loaded, asked for times; and started again after an abort, with
what was loaded before, but without what ended it.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from autotune.compiling import libtpu, protocol
from autotune.compiling.client import answer_of
from autotune.compiling.limits import START_LIMIT_S
from autotune.compiling.process import CompilerProcess
from autotune.compiling.protocol import Device, Loaded, Raised
from autotune.domain.compilers import Attempted, Compilers, Required, WriteExecutable
from autotune.domain.errors import AutotuneError, UnknownNameError
from autotune.domain.evidence import (
    NOT_COMPARED,
    Measurement,
    MeasurementCandidate,
    NotMeasured,
    Timed,
    TimedNote,
)
from autotune.domain.key import Chip, KernelRef, parse_chip
from autotune.domain.outcome import Crashed, TimedOut
from autotune.domain.problem import Config, Problem
from autotune.measuring.race import DeviceLostError, RaceDecision, decide

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


XLA = "xla"


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceLimits:
    """``candidate_s``: for loading and warming up one, and for each of its runs; waits for a
    processor are not counted. ``seconds`` and ``samples``: of the whole race, which ``stop`` ends
    early."""

    seconds: float = 120.0
    samples: int = 600
    candidate_s: float = 60.0
    stop: Callable[[], bool] = lambda: False


@dataclass(slots=True)
class Session:
    """``number``: which device of this machine. Leaves no process and no file behind."""

    compilers: Compilers
    process: CompilerProcess
    work: MeasuringTask
    number: int = 0
    limits: RaceLimits = field(default_factory=RaceLimits)
    announce: Callable[[str], None] = lambda _: None
    compile_elsewhere: bool = True
    _child: Child = field(init=False)

    def __post_init__(self) -> None:
        self._child = Child(self.process, self.work, self.number, self.limits.candidate_s)

    def measure(
        self, candidates: Sequence[MeasurementCandidate], default: Config | None
    ) -> Measurement | NotMeasured:
        """Race the candidates and plain XLA; the default is one of the candidates. ``NotMeasured``
        when nothing could be measured at all."""
        started = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="autotune-measuring-") as folder:
                return self._measured(candidates, default, Path(folder), started)
        except (CannotMeasureError, DeviceLostError, AutotuneError) as error:
            return NotMeasured(str(error))
        finally:
            self._child.close()

    def _measured(
        self,
        candidates: Sequence[MeasurementCandidate],
        default: Config | None,
        folder: Path,
        started: float,
    ) -> Measurement:
        different = _different(candidates)
        configs: dict[str, Config | None] = {
            f"c{number}": candidate.config for number, candidate in enumerate(different)
        }
        configs[XLA] = None
        programs = [self._program(name, config, folder) for name, config in configs.items()]
        device = self._child.open()
        _check(device, self.work)
        self.announce(f"measuring {len(different)} configs and plain XLA on {device}")
        notes, refused = self._loaded(programs)
        names = [name for name in configs if name not in refused]
        deadline = time.monotonic() + self.limits.seconds
        decision = decide(
            names,
            self._child.sample,
            default=_name_of(default, candidates, configs),
            cannot_win=(XLA,),
            seed=self.work.seed,
            most_samples=self.limits.samples,
            out_of_time=lambda: time.monotonic() > deadline or self.limits.stop(),
        )
        measurement = _measurement(
            device,
            decision,
            configs,
            notes,
            {**refused, **decision.refused},
            seed=self.work.seed,
            seconds=time.monotonic() - started,
        )
        return _with_twins(measurement, candidates)

    def _program(self, name: str, config: Config | None, folder: Path) -> Program:
        """Compiled by a compiler process where that is possible: the accelerator does not wait."""
        path, work = folder / name, self.work
        if self.compile_elsewhere:
            failure = self.compilers.ask(
                WriteExecutable(
                    ref=work.ref,
                    problem=work.problem,
                    config=config,
                    name=name,
                    chip=work.chip,
                    path=str(path),
                    options=work.options,
                )
            )
            if failure is None:
                return Program(name=name, config=config, path=path)
        return Program(name=name, config=config, path=None)

    def _loaded(self, programs: Sequence[Program]) -> tuple[dict[str, str], dict[str, str]]:
        """Notes and refusals by name."""
        notes: dict[str, str] = {}
        refused: dict[str, str] = {}
        for program in programs:
            loaded = self._child.load(program)
            if isinstance(loaded, NotMeasured):
                refused[program.name] = loaded.reason
            elif loaded.compiled_here:
                notes[program.name] = _compiled_here(loaded.refusal)
        return notes, refused


def _compiled_here(refusal: str) -> str:
    """``refusal``: of the executable that was compiled elsewhere, empty where there was none."""
    text = f"what was compiled elsewhere is refused here: {refusal}".splitlines()[0][:240]
    return text if refusal else TimedNote.COMPILED_HERE.value


def _check(device: Device, work: MeasuringTask) -> None:
    """Raises ``CannotMeasureError`` for another device than the one that was compiled for."""
    if work.chip is None:
        return
    try:
        kind = parse_chip(device.kind)
    except UnknownNameError as error:
        raise CannotMeasureError(f"the attached device is no TPU that is known: {error}") from error
    if kind != work.chip:
        raise CannotMeasureError(f"the attached device is a {kind}, not a {work.chip}")
    if device.cores != work.chip.cores_per_device:
        raise CannotMeasureError(
            f"the attached {kind} shows {device.cores} cores as one device, what is tuned is for "
            f"{work.chip.cores_per_device}"
        )


def _different(candidates: Sequence[MeasurementCandidate]) -> list[MeasurementCandidate]:
    """The first of each program."""
    first: dict[str, MeasurementCandidate] = {}
    for candidate in candidates:
        first.setdefault(candidate.identity, candidate)
    return list(first.values())


def _name_of(
    config: Config | None,
    candidates: Sequence[MeasurementCandidate],
    configs: dict[str, Config | None],
) -> str | None:
    """The name under which a config is measured, or the one with the same program."""
    identity = next((c.identity for c in candidates if c.config == config), None)
    same = {c.config for c in candidates if c.identity == identity}
    return next((name for name, other in configs.items() if other in same), None)


def _measurement(
    device: Device,
    decision: RaceDecision,
    configs: dict[str, Config | None],
    notes: dict[str, str],
    refused: dict[str, str],
    *,
    seed: int,
    seconds: float,
) -> Measurement:
    ranks = {rank.name: rank for rank in decision.ranking}
    left = [name for name in configs if name not in ranks]
    timed = []
    for name in (*ranks, *left):
        rank = ranks.get(name)
        timed.append(
            Timed(
                config=configs[name],
                samples_us=tuple(decision.samples.get(name, ())),
                ratio=rank.ratio if rank else None,
                low=rank.low if rank else None,
                high=rank.high if rank else None,
                slower=bool(rank and rank.slower),
                refused="" if rank else refused.get(name, NOT_COMPARED),
                note=notes.get(name, ""),
            )
        )
    return Measurement(
        method=device.method,
        device=str(device),
        timed=tuple(timed),
        stopped_by=decision.stopped_by,
        void=decision.void,
        drift=decision.drift,
        set_aside=decision.set_aside,
        looks=decision.looks,
        seed=seed,
        seconds=seconds,
    )


def _with_twins(
    measurement: Measurement, candidates: Sequence[MeasurementCandidate]
) -> Measurement:
    """The same, with what has the program of a measured config listed beside it."""
    timed = list(measurement.timed)
    for candidate in candidates:
        same = next(c for c in candidates if c.identity == candidate.identity)
        measured = measurement.of(same.config)
        if measured and measurement.of(candidate.config) is None:
            twin = replace(measured, config=candidate.config, note=TimedNote.SAME_PROGRAM.value)
            timed.insert(timed.index(measured) + 1, twin)
    return replace(measurement, timed=tuple(timed))
