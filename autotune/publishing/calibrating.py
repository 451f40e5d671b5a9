"""Kernels of the catalogue that are timed to see how far their estimates are off, and how: for
``autotune calibrate``. A problem that is done is in the database before the next one begins."""

import random
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.calibration import MeasuredProgram
from autotune.domain.compilers import CompileBaseline, Compilers, XlaCost
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.evidence import DEVICE_TIME, MeasurementCandidate, NotMeasured
from autotune.domain.explanation import OperationTime
from autotune.domain.key import Chip, Key
from autotune.domain.outcome import Estimated
from autotune.domain.problem import Config, Problem, make_config
from autotune.domain.store import Store
from autotune.estimating.cost_model.operation import relayout_us, xla_time
from autotune.estimating.simulator import MODEL
from autotune.measuring.session import (
    XLA,
    CannotMeasureError,
    MeasuringTask,
    RaceLimits,
    Session,
    measuring_process,
)
from autotune.publishing.publish import bound_us
from autotune.searching.one_config import config_judge
from autotune.searching.subject import Subject, describe_subject

_CONFIGS = 2  # of each problem: the default and one that is drawn
_DRAWS = 12  # at most, until one of them can be compiled
_LIMITS = RaceLimits(seconds=5, samples=60)
_ROUNDING = 0.01  # of clocks and peaks as they are printed

Samples = Mapping[Config | None, Sequence[float]]
"""Device times, µs, by config; None is plain XLA."""
Times = Callable[[Subject, Sequence[MeasurementCandidate]], Samples]
"""Raises ``AutotuneError`` where nothing of a problem can be timed."""


@dataclass(frozen=True, slots=True)
class CalibrationProblem:
    """``key`` and ``configs``: where times of them are known, of a file."""

    kernel: str
    problem: Problem | ProblemWords
    key: Key | None = None
    configs: tuple[Config, ...] = ()


def catalogue() -> list[CalibrationProblem]:
    """What is timed on an attached TPU."""
    text = Path(__file__).with_name("calibration.toml").read_text(encoding="utf-8")
    return [
        CalibrationProblem(
            entry["kernel"], ProblemWords(shape=shape, options=tuple(entry.get("options", ())))
        )
        for entry in tomllib.loads(text)["problems"]
        for shape in entry["shapes"]
    ]


def problems_of(rows: Sequence[MeasuredProgram]) -> list[CalibrationProblem]:
    """What ``times_of`` the same rows has times of. A file that was sent names no file to run: of
    other kernels than those of ``catalogue`` nothing is taken."""
    known, configs = {each.kernel for each in catalogue()}, dict[Key, list[Config]]()
    for row in rows:
        if row.key.kernel in known:
            configs.setdefault(row.key, []).extend([] if row.config is None else [row.config])
    return [CalibrationProblem(k.kernel, k.problem, k, tuple(c)) for k, c in configs.items()]


def calibrate(
    compilers: Compilers,
    store: Store,
    chip: Chip,
    problems: Sequence[CalibrationProblem],
    times: Times,
    announce: Callable[[str], None],
) -> bool:
    """Estimate and time each problem that this database has no times of its own of by this model,
    and keep them; of a file, when all are done, in the place of all that are from one. ``announce``
    hears of each. Whether any is there. Raises ``CannotMeasureError`` as ``times`` does."""
    sent, left_out = list[MeasuredProgram](), 0
    for number, problem in enumerate(problems, 1):
        name = f"{number} of {len(problems)}, {problem.kernel}"
        try:
            subject = describe_subject(
                compilers, find_kernel(problem.kernel), chip, problem.problem
            )
            if problem.key not in (None, subject.key):
                raise InvalidInputError("its times are of another chip or source of the kernel")
            known = store.calibration(chip, subject.toolchain)
            models = (row.model for row in known if row.key == subject.key and not row.from_file)
            if MODEL in models:
                announce(f"{name}: it is in the database")
                continue
            made = _rows(compilers, subject, problem.configs, times)
            if not (rows := [replace(row, from_file=problem.key is not None) for row in made]):
                raise InvalidInputError("nothing of it was timed")
        except AutotuneError as error:
            announce(f"{name}: left out, {error}")
            left_out += 1
            continue
        if problem.key:
            sent += rows
        else:
            store.save_calibration(rows)
        off = (f"{r.config or XLA} {r.estimate_us / r.measured_us - 1:+.1%}" for r in rows)
        announce(f"{name}, estimates against times: {', '.join(off)}")
    store.save_calibration(sent)
    return left_out < len(problems)


def _rows(
    compilers: Compilers, subject: Subject, configs: Sequence[Config], times: Times
) -> Iterator[MeasuredProgram]:
    """Raises ``AutotuneError`` with the reason where nothing of the problem is compared."""
    estimates = dict(_estimates(compilers, subject, configs))
    if not estimates:
        raise InvalidInputError("none of its configs has an estimate")
    samples = times(
        subject,
        [MeasurementCandidate(config=c, program=each.program) for c, each in estimates.items()],
    )

    def row(
        config: Config | None, least_us: float, operations: Iterable[OperationTime], **made: Any
    ) -> MeasuredProgram:
        taken = sorted(samples[config])
        measured_us = taken[len(taken) // 2]
        if measured_us < least_us * (1 - _ROUNDING):
            raise InvalidInputError(
                f"{measured_us:.4g} µs is less than the {least_us:.4g} µs that the chip needs at "
                "its peak rates"
            )
        return MeasuredProgram(
            key=subject.key,
            config=config,
            measured_us=measured_us,
            samples=len(taken),
            relayout_us=relayout_us(operations),
            model=MODEL,
            **made,
        )

    for config, outcome in estimates.items():
        if samples.get(config):
            e, why = outcome.estimate, outcome.estimate.explanation
            made = {"estimate_us": e.time_us, "limited_by": e.limited_by}
            least_us = why.roofline_us if why else 0.0
            yield row(config, least_us, e.operations, program=outcome.program, **made)
    cost = compilers.ask(subject.question(CompileBaseline)) if samples.get(None) else None
    if isinstance(cost, XlaCost):
        whole = xla_time(cost.schedule, (), subject.chip)
        if whole.error is not None and not whole.untimed:
            made = {"program": str(subject.key), "estimate_us": whole.time_us, "limited_by": XLA}
            least_us = bound_us(cost, 0, subject.problem.dtype, subject.chip)
            yield row(None, least_us, whole.operations, **made)


def _estimates(
    compilers: Compilers, subject: Subject, configs: Sequence[Config]
) -> Iterator[tuple[Config, Estimated]]:
    """The configs that were given, else the default and others that are drawn, of other
    programs."""
    judge, programs = config_judge(compilers, subject), set[str]()
    draw = random.Random(str(subject.problem))  # noqa: S311 (no secret; the same everywhere)
    for turn in range(len(configs) or _DRAWS):
        drawn = {name: draw.choice(list(values)) for name, values in judge.choices.axes.items()}
        config = configs[turn] if configs else judge.complete(make_config(drawn if turn else {}))
        outcome = judge.outcome(judge.complete(config))
        if isinstance(outcome, Estimated) and outcome.program not in programs:
            programs.add(outcome.program)
            yield config, outcome
        if not configs and len(programs) == _CONFIGS:
            return


def attached(compilers: Compilers, python: str, device: int) -> Times:
    """Times of the attached TPU. Raise ``CannotMeasureError`` where it times nothing of the first
    problem: it would be the same with all."""
    is_usable = False

    def times(subject: Subject, candidates: Sequence[MeasurementCandidate]) -> Samples:
        nonlocal is_usable
        options = subject.toolchain.options
        task = MeasuringTask(
            ref=subject.ref, problem=subject.problem, chip=subject.chip.chip, options=options
        )
        child = measuring_process("tpu", python, options)
        session = Session(compilers, child, task, number=device, limits=_LIMITS)
        run = session.measure(candidates, candidates[0].config)
        if isinstance(run, NotMeasured):
            raise (AutotuneError if is_usable else CannotMeasureError)(run.reason)
        is_usable = True
        if run.method != DEVICE_TIME or run.void:
            raise AutotuneError(run.void or f"{run.method} says nothing of a kernel")
        return {timed.config: timed.samples_us for timed in run.timed if not timed.refused}

    return times


def times_of(rows: Sequence[MeasuredProgram]) -> Times:
    """The times that stand in rows; what was estimated there counts for nothing."""
    return lambda subject, _: {r.config: [r.measured_us] for r in rows if r.key == subject.key}
