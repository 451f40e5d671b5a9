"""Whether the finalists of a search are timed on this machine, and how: for ``autotune search`` and
for jobs alike."""

import sys
from collections.abc import Callable

from autotune.domain.compilers import Compilers
from autotune.measuring.session import MeasuringTask, RaceLimits, Session, measuring_process
from autotune.publishing.estimated_ties import Measure
from autotune.publishing.task import Plan
from autotune.searching.subject import Subject


def new_measure(
    compilers: Compilers,
    subject: Subject,
    plan: Plan,
    announce: Callable[[str], None],
    stop: Callable[[], bool],
) -> Measure | None:
    """Times candidates on the attached TPU; None where that is none of the searched chip, or no
    times are wanted. ``stop`` ends the race early."""
    timing, chip, options = plan.timing, subject.chip.chip, subject.toolchain.options
    if timing is None or not plan.times(chip):
        return None
    return Session(
        compilers,
        measuring_process("tpu", plan.python or sys.executable, options),
        MeasuringTask(
            ref=subject.ref, problem=subject.problem, chip=chip, seed=plan.seed, options=options
        ),
        number=timing.device,
        announce=announce,
        limits=RaceLimits(seconds=timing.seconds, stop=stop),
    ).measure
