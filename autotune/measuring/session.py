"""One measuring session, from the parent: compile elsewhere, load, race, and what came of it."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.compiling.process import CompilerProcess
from autotune.compiling.protocol import Device
from autotune.domain.compilers import Compilers, WriteExecutable
from autotune.domain.errors import AutotuneError, UnknownNameError
from autotune.domain.evidence import (
    NOT_COMPARED,
    Measurement,
    MeasurementCandidate,
    NotMeasured,
    Timed,
    TimedNote,
)
from autotune.domain.key import parse_chip
from autotune.domain.problem import Config
from autotune.measuring.process import CannotMeasureError, Child, MeasuringTask, Program
from autotune.measuring.race import DeviceLostError, RaceDecision, decide

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
