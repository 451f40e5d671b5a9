"""Whether the finalists of a search are timed on this machine, and how: for ``autotune search`` and
for jobs alike."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from autotune.domain.chip import Chip
from autotune.domain.compilers import Compilers
from autotune.measuring.attached import attached_chips
from autotune.measuring.process import MeasuringTask, measuring_process
from autotune.measuring.session import RaceLimits, Session
from autotune.publishing.measured import Measure
from autotune.searching.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """``device``: which of the attached ones. ``seconds``: of the race at most. ``python``: whose
    JAX opens the device."""

    device: int = 0
    seconds: float = 120.0
    seed: int = 0
    python: str = sys.executable


def is_timed(timing: Timing | None, chip: Chip) -> bool:
    """Whether a TPU of this chip is attached, and times are wanted."""
    return timing is not None and chip in attached_chips()


def new_measure(
    compilers: Compilers,
    subject: Subject,
    timing: Timing,
    announce: Callable[[str], None],
    stop: Callable[[], bool] = lambda: False,
) -> Measure | None:
    """Times candidates on the attached TPU; None where it is none of the searched chip. ``stop``
    ends the race early."""
    chip = subject.chip.chip
    if not is_timed(timing, chip):
        return None
    work = MeasuringTask(ref=subject.ref, problem=subject.problem, chip=chip, seed=timing.seed)
    return Session(
        compilers,
        measuring_process("tpu", timing.python),
        work,
        number=timing.device,
        announce=announce,
        limits=RaceLimits(seconds=timing.seconds, stop=stop),
    ).measure
