"""The time of a step, asked of a compiler."""

import pytest

from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import CompileStep
from autotune.domain.key import Chip
from autotune.domain.outcome import CompileFailed
from autotune.domain.step import Step
from autotune.publishing.step import timed_step
from tests.fakes.compiler import FakeCompilers
from tests.samples.operations import compiled_step
from tests.samples.traces import V5E


@pytest.mark.parametrize("is_running", [True, False])
def test_a_step_that_hbm_has_no_room_for_is_refused(is_running):
    """Unless the compiler has come to its end, and knows better."""

    class Compilers(FakeCompilers):
        def answer(self, question):
            if not isinstance(question, CompileStep):
                return super().answer(question)
            return compiled_step(is_running=is_running, hbm_bytes=18 << 30)

    question = CompileStep(
        ref=find_kernel("matmul"), chip=Chip.V5E, bounds=(), budget_s=1.0, options=None
    )
    timed = timed_step(Compilers(chip=V5E), question)
    assert isinstance(timed, CompileFailed if is_running else Step)
    assert not isinstance(timed, CompileFailed) or "needs 18.00G, 16.0" in timed.reason
